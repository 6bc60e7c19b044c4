"""The report of a plan: one HTML file that needs no network, for people who look before they read.

`study` gathers what there is to say of a plan, `page` writes it as HTML. A section of the page is a file of `sections`; what a
browser plays is `page.html`, `style.css` and `pipeline.js`, put into the page as they are.
"""

from __future__ import annotations

from holmes_sim.report.page import page
from holmes_sim.report.study import Study, study

__all__ = ["Study", "page", "study"]
