"""The HTML report of a plan, or of a plan of islands: one file that needs no network.

`contents` gathers the data of the report, `page` writes it as HTML. Each file of `sections` is a section of the page.
`islands_contents`, `islands_page` and `islands_sections` are the same for a plan of islands. `page.html`, `style.css` and
`pipeline.js` are copied into the page. (`holmes_sim.report` is the function `report` of this module.)
"""

from __future__ import annotations

from holmes_sim import commands
from holmes_sim.reporting.contents import Contents, gather
from holmes_sim.reporting.islands_contents import IslandsContents, gather_islands
from holmes_sim.reporting.islands_page import islands_page
from holmes_sim.reporting.page import Page, page
from sim.errors import OptionError
from sim.plan.islands import IslandsPlan
from sim.plan.plan import Plan

__all__ = ["Contents", "IslandsContents", "Page", "gather", "gather_islands", "islands_page", "page", "report"]


def report(plan: Plan | IslandsPlan, names: tuple[str, ...] = commands.BASELINES, time_limit: float = 10.0) -> Page:
    """A plan, or a plan of islands, as one HTML page. A notebook shows it; `hs.write("report.html", page)` saves it.

    A plan is compared with the named strategies (none: `()`), each with `time_limit` seconds of search; a plan of islands is
    not. Raises OptionError where strategies are named for a plan of islands, PlanError, TopologyError.
    """
    if isinstance(plan, IslandsPlan):
        if names not in (commands.BASELINES, ()):
            raise OptionError(
                "report: a plan of islands is compared with no strategies; hs.plan_islands compares sync strategies"
            )
        return islands_page(gather_islands(plan))
    return page(gather(plan, names, time_limit))
