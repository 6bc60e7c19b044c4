"""The HTML report of a plan, or of a plan of islands: one file that needs no network.

`contents` gathers the data of the report, `page` writes it as HTML. Each file of `sections` is a section of the page.
`pipelines_page` is the page of a plan of unlike pipelines.
`islands_contents`, `islands_page` and `islands_sections` are the same for a plan of islands. `page.html`, `style.css` and
`pipeline.js` are copied into the page. (`holmes_sim.report` is the function `report` of this module.)
"""

from __future__ import annotations

from holmes_sim import commands
from holmes_sim.reporting.contents import Contents, gather
from holmes_sim.reporting.islands_contents import IslandsContents, gather_islands
from holmes_sim.reporting.islands_page import islands_page
from holmes_sim.reporting.page import Page, page
from holmes_sim.reporting.pipelines_page import pipelines_page
from holmes_sim.unlike_pipelines import simulate_pipelines
from sim.errors import OptionError
from sim.plan.islands import IslandsPlan
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan

__all__ = [
    "Contents",
    "IslandsContents",
    "Page",
    "gather",
    "gather_islands",
    "islands_page",
    "page",
    "pipelines_page",
    "report",
]


def report(
    plan: Plan | IslandsPlan | PipelinesPlan, names: tuple[str, ...] = commands.BASELINES, time_limit: float = 10.0
) -> Page:
    """A plan, or a plan of islands or of unlike pipelines, as one HTML page. A notebook shows it;
    `hs.write("report.html", page)` saves it.

    A plan is compared with the named strategies (none: `()`), each with `time_limit` seconds of search; plans of the other two
    kinds are not. Raises OptionError where strategies are named for them, PlanError, TopologyError.
    """
    if isinstance(plan, PipelinesPlan):
        if names not in (commands.BASELINES, ()):
            raise OptionError("report: a plan of unlike pipelines is compared with no strategies")
        return pipelines_page(simulate_pipelines(plan))
    if isinstance(plan, IslandsPlan):
        if names not in (commands.BASELINES, ()):
            raise OptionError(
                "report: a plan of islands is compared with no strategies; hs.plan_islands compares sync strategies"
            )
        return islands_page(gather_islands(plan))
    return page(gather(plan, names, time_limit))
