"""What a report tells of a plan: its simulated step, where the seconds go, other strategies, how each target launches it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from holmes_sim import commands, exporters
from holmes_sim.launching import environment, hosts
from holmes_sim.results import Compared, Simulated
from planner import api, strategies
from planner.api import Row
from planner.request import Request
from sim.plan.plan import Plan
from sim.plan.prediction import Prediction
from sim.results.explain import Explanation

MOST_LAUNCHED = 128
"""Ranks of a plan up to which its launches are made, to tell how (a guess): of 768 one target makes 870 MB of files."""


@dataclass(frozen=True, slots=True)
class Way:
    """A target of launches: why it refuses the plan, a line a property; else `how` to launch and what was `assumed` for it.

    `how` is Markdown, empty where the plan is too large to make its files for that alone."""

    target: str
    refused: tuple[str, ...] = ()
    how: str = ""
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Study:
    """A plan and everything that its page shows; `file` is the plan's, as a command line names it.

    `prediction` is what the plan promises, and what was simulated just now where it promises nothing. `compared` has the plan
    itself as its first row; None where it is held against nobody. `assumed` is what the topology leaves open of its hosts.
    """

    file: str
    plan: Plan
    run: Simulated
    prediction: Prediction
    explanation: Explanation
    compared: Compared | None
    ways: tuple[Way, ...]
    assumed: tuple[str, ...]


def study(
    plan: Plan,
    names: tuple[str, ...] = commands.BASELINES,
    time_limit: float = 10.0,
    file: str = "plan.json",
    progress: Callable[[str], None] = lambda text: None,
) -> Study:
    """Simulate a plan and hold it against strategies, each with so many seconds to search. Raises PlanError, TopologyError."""
    for name in names:
        strategies.get(name)
    progress("simulating")
    run = commands.simulate(plan)
    promised = plan.prediction or run.prediction
    compared = _compared(plan.annotated(prediction=promised), names, time_limit, progress)
    progress("launches")
    ways = tuple(_way(plan, name) for name in exporters.names())
    assumed = (*hosts.assumed(plan), *environment.assumed(plan))
    return Study(file, plan, run, promised, commands.explain(run), compared, ways, assumed)


def _compared(plan: Plan, names: tuple[str, ...], time_limit: float, progress: Callable[[str], None]) -> Compared | None:
    """The plan beside what others answer to its request: its own strategy is not asked again, and nothing is pinned."""
    mine = plan.made_by.strategy
    others = tuple(name for name in dict.fromkeys(names) if name != mine)
    if not others:
        return None
    request = Request(replace(plan.topology, workload=plan.workload), plan.workload, time_limit=time_limit)
    rows = api.compare(request, others, progress)
    return Compared(request, (mine, *others), (Row(mine, plan), *rows))


def _way(plan: Plan, target: str) -> Way:
    exporter = exporters.get(target)
    refused = tuple(f"{target} cannot express {fault}" for fault in exporter.against(plan))
    if refused or plan.config.world_size > MOST_LAUNCHED:
        return Way(target, refused)
    launch = exporter.launch(plan)
    return Way(target, how=launch.how, assumed=launch.assumed)
