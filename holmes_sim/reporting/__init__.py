"""The report of a plan: one HTML file that needs no network, for people who look before they read.

`study` gathers what there is to say of a plan, `page` writes it as HTML. A section of the page is a file of `sections`; what a
browser plays is `page.html`, `style.css` and `pipeline.js`, put into the page as they are. (Not `holmes_sim.report`: that is
the function, for people and notebooks.)
"""

from __future__ import annotations

from holmes_sim import commands
from holmes_sim.reporting.page import Page, page
from holmes_sim.reporting.study import Study, study
from sim.plan.plan import Plan

__all__ = ["Page", "Study", "page", "report", "study"]


def report(plan: Plan, names: tuple[str, ...] = commands.BASELINES, time_limit: float = 10.0) -> Page:
    """A plan as one HTML page, which a notebook shows and `hs.write("report.html", page)` keeps.

    The plan is held against the strategies named (none: `()`), each with so many seconds to search. Raises PlanError,
    TopologyError.
    """
    return page(study(plan, names, time_limit))
