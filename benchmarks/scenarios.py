"""Simulated and measured steps in the lab: `python -m benchmarks scenarios` runs three plans on each of six small fleets.

Every plan runs in the lab (docs/lab.md) with paced compute: its program sends real packets over links with the rates of the
topology divided by a scale. All plans of a fleet have the same scale. Pins keep all nodes in use (pp, dp) and microbatches
small; all other dimensions are chosen by the strategy. Needs root or user namespaces, and torch."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from holmes_sim import commands, lab, running
from holmes_sim.torch_backend.run_options import RunOptions
from planner.api import row
from planner.costs.context import PlanningContext
from planner.request import Request, Wishes
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
APART = 0.05
"""Relative difference of two measured steps above which the simulator is expected to order them as measured (a guess)."""


@dataclass(frozen=True, slots=True)
class Row:
    """One plan in the lab: seconds of its step, simulated (on the lab's links) and measured, and the spread of the steps."""

    scenario: str
    strategy: str
    scale: float
    simulated: Seconds
    measured: Seconds
    spread: float

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
            comparison = running.run_in_lab(found, RunOptions(steps=steps, compute="paced", scale=scale)).compared
            assert comparison.step.simulated is not None
            assert comparison.step.measured is not None
            yield Row(name, strategy, scale, comparison.step.simulated, comparison.step.measured, comparison.spread or 0.0)


def plan(name: str) -> dict[str, Plan]:
    """Plans of a scenario by strategy, without strategies that find none."""
    topology = commands.load(name)
    request = Request(topology, commands.workload_of(topology), SCENARIOS[name], time_limit=20.0)
    rows = (row(request, strategy, PlanningContext(request, lambda text: None)) for strategy in STRATEGIES)
    return {found.name: found.plan for found in rows if found.plan is not None}


def table(rows: Iterator[Row]) -> Iterator[str]:
    """The lines of a Markdown table, each when it is known, and a summary."""
    yield "| scenario | strategy | scale | simulated | measured | spread | error |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    found = []
    for one in rows:
        found.append(one)
        seconds = f"{one.simulated:.2f} s | {one.measured:.2f} s | {one.spread:.1%}"
        yield f"| {one.scenario.removeprefix('lab/lab-')} | {one.strategy} | {one.scale:g} | {seconds} | {one.error:+.1%} |"
    errors = [abs(one.error) for one in found]
    yield ""
    yield f"Mean error {statistics.mean(errors):.1%}, worst {max(errors):.1%}. {_order(found)} {_best(found)}"


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
