"""Data of a report: the simulated step, where its time goes, other strategies, and how to launch the plan."""

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
"""Largest number of ranks for which launches are generated to describe them (a guess): for 768 ranks, one target generates 870
MB of files.
"""


@dataclass(frozen=True, slots=True)
class LaunchTarget:
    """A target of launches: reasons why it refuses the plan, or instructions (`how`) and their assumptions.

    `how` is Markdown; empty if the plan has more than `MOST_LAUNCHED` ranks.
    """

    name: str
    refused: tuple[str, ...] = ()
    how: str = ""
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Contents:
    """A plan and all data of its page; `file` is the path of the plan for command lines.

    `prediction` is the plan's own, or that of the new simulation if the plan has none. `compared` has the plan itself as its
    first row; None without other strategies. `assumed` are assumptions about hosts that the topology does not specify.
    """

    file: str
    plan: Plan
    run: Simulated
    prediction: Prediction
    explanation: Explanation
    compared: Compared | None
    targets: tuple[LaunchTarget, ...]
    assumed: tuple[str, ...]


def gather(
    plan: Plan,
    names: tuple[str, ...] = commands.BASELINES,
    time_limit: float = 10.0,
    file: str = "plan.json",
    progress: Callable[[str], None] = lambda text: None,
) -> Contents:
    """Simulate a plan and compare it with strategies, each with `time_limit` seconds of search. Raises PlanError,
    TopologyError.
    """
    for name in names:
        strategies.get(name)
    progress("simulating")
    run = commands.simulate(plan)
    prediction = plan.prediction or run.prediction
    compared = _compared(plan.annotated(prediction=prediction), names, time_limit, progress)
    progress("launches")
    targets = tuple(_target(plan, name) for name in exporters.names())
    assumed = (*hosts.assumed(plan), *environment.assumed(plan))
    return Contents(file, plan, run, prediction, commands.explain(run), compared, targets, assumed)


def _compared(plan: Plan, names: tuple[str, ...], time_limit: float, progress: Callable[[str], None]) -> Compared | None:
    """The plan beside the plans of other strategies for the same request without pins; its own strategy does not plan again.

    None where nothing is to be compared with, or the planner does not search the model."""
    mine = plan.made_by.strategy
    others = tuple(name for name in dict.fromkeys(names) if name != mine)
    if not others or not plan.workload.model.is_uniform:
        return None
    request = Request(replace(plan.topology, workload=plan.workload), plan.workload, time_limit=time_limit)
    rows = api.compare(request, others, progress)
    return Compared(request, (mine, *others), (Row(mine, plan), *rows))


def _target(plan: Plan, target: str) -> LaunchTarget:
    """The launch of a plan for one target."""
    exporter = exporters.get(target)
    refused = tuple(f"{target} cannot express {fault}" for fault in exporters.unsupported(target, plan))
    if refused or plan.config.world_size > MOST_LAUNCHED:
        return LaunchTarget(target, refused)
    launch = exporter.launch(plan)
    return LaunchTarget(target, how=launch.how, assumed=launch.assumed)
