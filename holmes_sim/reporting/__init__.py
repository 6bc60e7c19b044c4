"""The HTML report of a plan: one file that needs no network.

`contents` gathers the data of the report, `page` writes it as HTML. Each file of `sections` is a section of the page.
`page.html`, `style.css` and `pipeline.js` are copied into the page. (`holmes_sim.report` is the function `report` of this
module.)
"""

from __future__ import annotations

from holmes_sim import commands
from holmes_sim.reporting.contents import Contents, gather
from holmes_sim.reporting.page import Page, page
from sim.plan.plan import Plan

__all__ = ["Contents", "Page", "gather", "page", "report"]


def report(plan: Plan, names: tuple[str, ...] = commands.BASELINES, time_limit: float = 10.0) -> Page:
    """A plan as one HTML page. A notebook shows it; `hs.write("report.html", page)` saves it.

    The plan is compared with the named strategies (none: `()`), each with `time_limit` seconds of search. Raises PlanError,
    TopologyError.
    """
    return page(gather(plan, names, time_limit))
