"""Simulated and measured steps in the lab: `python -m benchmarks scenarios` runs three plans on each of six small fleets,
`python -m benchmarks scenarios tp` one with tp 2 inside nodes of two devices on each, `python -m benchmarks scenarios unlike`
the fastest plan on each of three fleets where stages or replicas of unlike shapes pay.

Every plan runs in the lab (docs/lab.md) with paced compute: its program sends real packets over links with the rates of the
topology divided by a scale. All plans of a fleet have the same scale. Pins keep all nodes in use (pp, dp) and microbatches
small; all other dimensions are chosen by the strategy. Needs root or user namespaces, and torch."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from holmes_sim import commands, lab, running, targets
from holmes_sim.torch_backend.run_options import RunOptions
from planner.api import row
from planner.costs.context import PlanningContext
from planner.request import Request, Wishes
from sim.formats import edits
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.units import Seconds

STRATEGIES = ("certified", "holmes", "megatron")
SCENARIOS = {
    "lab/lab-hybrid-nics": Wishes(tp=1, microbatch_size=2),
    "lab/lab-slow-trunk": Wishes(tp=1, pp=4, microbatch_size=2),
    "lab/lab-uneven-stages": Wishes(tp=1, pp=4, microbatch_size=2),
    "lab/lab-mixed-devices": Wishes(tp=1, microbatch_size=2),
    "lab/lab-slow-dp": Wishes(tp=1, pp=1, dp=4, microbatch_size=2),
    "lab/lab-three-clusters": Wishes(tp=1, microbatch_size=2),
}
TENSOR_PARALLEL = {
    "lab/lab-hybrid-nics": Wishes(tp=2, microbatch_size=2),
    "lab/lab-slow-trunk": Wishes(tp=2, pp=4, microbatch_size=2),
    "lab/lab-uneven-stages": Wishes(tp=2, pp=4, microbatch_size=2),
    "lab/lab-mixed-devices": Wishes(tp=2, microbatch_size=2),
    "lab/lab-slow-dp": Wishes(tp=2, pp=1, dp=4, microbatch_size=2),
    "lab/lab-three-clusters": Wishes(tp=2, microbatch_size=2),
}
"""The same fleets with two devices in a node, which are a tensor-parallel group: its traffic stays inside a namespace."""
UNLIKE = ("lab/lab-unlike-dp", "lab/lab-unlike-stages", "lab/lab-unlike-pipelines")
"""Fleets on which the fastest plan that `holmes-sim run` executes has unlike dp, or is one of unlike pipelines."""
APART = 0.05
"""Relative difference of two measured steps above which the simulator is expected to order them as measured (a guess)."""


@dataclass(frozen=True, slots=True)
class Row:
    """One plan in the lab: seconds of its step, simulated (on the lab's links) and measured, the spread of the steps, and
    the share of the time in which the cores were busy."""

    scenario: str
    strategy: str
    scale: float
    simulated: Seconds
    measured: Seconds
    spread: float
    busy: float = 0.0

    @property
    def error(self) -> float:
        """Simulated over measured, minus 1."""
        return self.simulated / self.measured - 1


def measure(names: tuple[str, ...] = tuple(SCENARIOS), steps: int = 3) -> Iterator[Row]:
    """Rows of every plan of every scenario, each when it is measured. Raises HolmesError where no lab can run."""
    for name in names:
        plans = plan(name)
        scale = max(lab.smallest_scale(found, len(os.sched_getaffinity(0))) for found in plans.values())
        for strategy, found in plans.items():
            yield _measured(name, strategy, found, RunOptions(steps=steps, compute="paced", scale=scale))


def measure_tensor_parallel(names: tuple[str, ...] = tuple(TENSOR_PARALLEL), steps: int = 3) -> Iterator[Row]:
    """Rows of the plans with tp 2 inside nodes, at the scale that the lab chooses, each when it is measured. Raises HolmesError
    where no lab can run."""
    for name in names:
        for strategy, found in plan(name, is_tensor_parallel=True).items():
            yield _measured(name, strategy, found, RunOptions(steps=steps, compute="paced", scale=0.0))


def measure_unlike(names: tuple[str, ...] = UNLIKE, steps: int = 3) -> Iterator[Row]:
    """Rows of the fastest plan of each of these fleets, which no pin keeps alike, at the scale that the lab chooses. Raises
    HolmesError where no lab can run."""
    for name in names:
        answer = commands.plan(commands.load(name), target=targets.NONE)
        found = answer.replicas.plan if answer.replicas is not None else None
        yield _measured(name, "certified", found or answer.plan, RunOptions(steps=steps, compute="paced", scale=0.0))


def _measured(name: str, strategy: str, plan: Plan | PipelinesPlan, options: RunOptions) -> Row:
    """The row of a plan that is run in the lab."""
    answer = running.run_in_lab(plan, options)
    found = answer.compared
    assert found.step.simulated is not None
    assert found.step.measured is not None
    busy = answer.load.busy + answer.load.stolen
    return Row(name, strategy, found.measured.scale, found.step.simulated, found.step.measured, found.spread or 0.0, busy)


def plan(name: str, is_tensor_parallel: bool = False) -> dict[str, Plan]:
    """Plans of a scenario by strategy, without strategies that find none."""
    topology = commands.load(name)
    if is_tensor_parallel:
        devices = {f"clusters.{cluster.name}.node.devices.count": 2 for cluster in topology.fleet.clusters}
        topology = edits.edited(topology, devices)
    wishes = (TENSOR_PARALLEL if is_tensor_parallel else SCENARIOS)[name]
    request = Request(topology, commands.workload_of(topology), wishes, time_limit=20.0)
    strategies = STRATEGIES[:1] if is_tensor_parallel else STRATEGIES
    rows = (row(request, strategy, PlanningContext(request, lambda text: None)) for strategy in strategies)
    return {found.name: found.plan for found in rows if found.plan is not None}


def table(rows: Iterator[Row]) -> Iterator[str]:
    """The lines of a Markdown table, each when it is known, and a summary."""
    yield "| scenario | strategy | scale | simulated | measured | spread | busy cores | error |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    found = []
    for one in rows:
        found.append(one)
        seconds = f"{one.simulated:.2f} s | {one.measured:.2f} s | {one.spread:.1%} | {one.busy:.0%}"
        yield f"| {one.scenario.removeprefix('lab/lab-')} | {one.strategy} | {one.scale:g} | {seconds} | {one.error:+.1%} |"
    errors = [abs(one.error) for one in found]
    yield ""
    several = len(found) > len({one.scenario for one in found})
    compared = f" {_order(found)} {_best(found)}" if several else ""
    yield f"Mean error {statistics.mean(errors):.1%}, worst {max(errors):.1%}.{compared}"


def _order(rows: list[Row]) -> str:
    pairs = [(a, b) for a, b in combinations(rows, 2) if a.scenario == b.scenario]
    apart = [(a, b) for a, b in pairs if abs(a.measured / b.measured - 1) > APART]
    right = [(a, b) for a, b in apart if (a.measured < b.measured) == (a.simulated < b.simulated)]
    return f"Of {len(apart)} pairs of plans that differ by more than {APART:.0%}, {len(right)} are ordered as measured."


def _best(rows: list[Row]) -> str:
    behind = []
    for scenario in dict.fromkeys(one.scenario for one in rows):
        measured = {one.strategy: one.measured for one in rows if one.scenario == scenario}
        behind.append(measured["certified"] / min(measured.values()) - 1)
    return f"The plan of certified is the fastest measured plan of each scenario, or at most {max(behind):.1%} slower."


def show(options: list[str]) -> None:
    """Print a Markdown table of plans in the lab, simulated and measured, each row when it is known: of all strategies, with
    `tp` of those with tensor-parallel groups inside nodes, or with `unlike` of those with unlike stages or replicas."""
    kinds = {(): measure, ("tp",): measure_tensor_parallel, ("unlike",): measure_unlike}
    if tuple(options) not in kinds:
        raise SystemExit("usage: python -m benchmarks scenarios [tp | unlike]")
    for line in table(kinds[tuple(options)]()):
        print(line, flush=True)
