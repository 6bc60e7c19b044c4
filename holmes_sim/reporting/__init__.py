"""The HTML report of a plan, or of a plan of islands: one file that needs no network.

`contents` gathers the data of the report, `page` writes it as HTML. Each file of `sections` is a section of the page.
`islands_contents`, `islands_page` and `islands_sections` are the same for a plan of islands, `disaggregated_page` for one with
attention and experts on two sets of ranks, `pipelines_page` for one of unlike pipelines. `page.html`, `style.css` and
`pipeline.js` are copied into the page. (`holmes_sim.report` is the function `report` of this module.)
"""

from __future__ import annotations

from holmes_sim import commands
from holmes_sim.disaggregated import simulate_disaggregated
from holmes_sim.reporting.contents import Contents, gather
from holmes_sim.reporting.disaggregated_page import two_sets_page
from holmes_sim.reporting.islands_contents import IslandsContents, gather_islands
from holmes_sim.reporting.islands_page import islands_page
from holmes_sim.reporting.page import Page, page
from holmes_sim.reporting.pipelines_page import pipelines_page
from holmes_sim.unlike_pipelines import simulate_pipelines
from sim.disaggregation.plan import DisaggregatedPlan
from sim.errors import OptionError
from sim.plan.islands import IslandsPlan
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan

__all__ = [
    "Contents", "IslandsContents", "Page", "gather", "gather_islands", "islands_page", "page", "pipelines_page", "report",
    "two_sets_page",
]  # fmt: skip


def report(
    plan: Plan | IslandsPlan | DisaggregatedPlan | PipelinesPlan,
    names: tuple[str, ...] = commands.BASELINES,
    time_limit: float = 10.0,
) -> Page:
    """A plan, or one of islands, of unlike pipelines or with two sets of ranks, as one HTML page. A notebook shows it;
    `hs.write("report.html", page)` saves it.

    A plan is compared with the named strategies (none: `()`), each with `time_limit` seconds of search; plans of the other
    kinds are not. Raises OptionError where strategies are named for them, PlanError, TopologyError.
    """
    if isinstance(plan, DisaggregatedPlan | PipelinesPlan):
        if names not in (commands.BASELINES, ()):
            what = "of unlike pipelines" if isinstance(plan, PipelinesPlan) else "with two sets of ranks"
            raise OptionError(f"report: a plan {what} is compared with no strategies")
        if isinstance(plan, PipelinesPlan):
            return pipelines_page(simulate_pipelines(plan))
        return two_sets_page(simulate_disaggregated(plan))
    if isinstance(plan, IslandsPlan):
        if names not in (commands.BASELINES, ()):
            raise OptionError(
                "report: a plan of islands is compared with no strategies; hs.plan_islands compares sync strategies"
            )
        return islands_page(gather_islands(plan))
    return page(gather(plan, names, time_limit))
