"""The range in which a measured step time is expected with a probability of 80 %, from runs that no fit saw.

The range is that of measured / predicted between the 10 % and the 90 % quantile of comparable runs (a split conformal interval
by category, also called Mondrian: Vovk et al., Algorithmic Learning in a Random World, 2005). Two runs are comparable if both
ran on one node or both on several nodes, and if both are predicted with the default stack or both with a fitted one. A run has
the weight 1 / number of runs of its source, so that each source counts equally. docs/accuracy.md compares this definition with
others; `python -m benchmarks ranges` measures how many runs of a source that was left out are inside.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import numpy as np

from holmes_sim.guesses import guessed_rates
from holmes_sim.residuals import DEFAULT, residuals
from sim.hardware.topology import Topology
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.units import Seconds, time_text

SHARE = 0.8
"""Probability of a measured step inside the range."""
ENOUGH_RUNS = 3
"""Least number of runs after which a stack has the range of fitted stacks. Guess: fewer say too little."""
Ratios = tuple[float, float]
"""Least and largest measured / predicted step."""


@dataclass(frozen=True, slots=True)
class StepRange:
    """The range of a step time, and the device types whose guessed rates the prediction rests on."""

    low_s: Seconds
    high_s: Seconds
    guessed: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The range as text: `6.7 to 8.2 s`."""
        low, high = (time_text(float(f"{seconds:.3g}")) for seconds in (self.low_s, self.high_s))
        (number, unit), (_, other) = low.split(" "), high.split(" ")
        return f"{number if unit == other else low} to {high}"

    @property
    def grade(self) -> str:
        """What the prediction rests on, if that is a guess: `rests on guessed rates of mi300x`; else empty."""
        return f"rests on guessed rates of {', '.join(self.guessed)}" if self.guessed else ""

    def facts(self) -> dict[str, Any]:
        """The range as plain data."""
        return {"step_range_s": [self.low_s, self.high_s], "guessed_rates": list(self.guessed)}


def step_range(step: Seconds, plan: Plan | PipelinesPlan) -> StepRange:
    """The range of the measured step of a plan for its predicted step."""
    low, high = ratios(is_fitted(plan.topology), plan.nodes > 1)
    pipelines = plan.pipelines if isinstance(plan, PipelinesPlan) else (plan,)
    guessed = dict.fromkeys(name for one in pipelines for name in guessed_rates(one))
    return StepRange(low * step, high * step, tuple(guessed))


def step_text(step: Seconds, plan: Plan | PipelinesPlan) -> str:
    """A predicted step with its range: `7.3 s, 80 % range 6.7 to 8.2 s`."""
    return f"{time_text(step)}, {SHARE * 100:.0f} % range {step_range(step, plan).text}"


def plan_facts(plan: Plan) -> dict[str, Any]:
    """The range of a plan's predicted step as plain data, for a plan file; empty without a prediction."""
    return step_range(plan.prediction.step_s, plan).facts() if plan.prediction is not None else {}


def is_fitted(topology: Topology) -> bool:
    """Whether the software stack of a topology was fitted to `ENOUGH_RUNS`. One written by hand counts as the default stack."""
    return int(topology.facts().get("stack", {}).get("runs", 0)) >= ENOUGH_RUNS


@functools.cache
def ratios(fitted: bool, several_nodes: bool) -> Ratios:
    """Least and largest measured / predicted step, to two decimals, of comparable runs."""
    low, high = ratios_without("", fitted, several_nodes)
    return round(low, 2), round(high, 2)


@functools.cache
def ratios_without(left_out: str, fitted: bool, several_nodes: bool) -> Ratios:
    """Least and largest measured / predicted step of comparable runs of all sources but one."""
    runs = [run for run in held_out(fitted) if run[0] != left_out]
    found = [(source, ratio) for source, nodes, ratio in runs if (nodes > 1) is several_nodes]
    shares = Counter(source for source, _, _ in runs)
    return quantiles([ratio for _, ratio in found], [1 / shares[source] for source, _ in found])


@functools.cache
def held_out_coverage(fitted: bool) -> float:
    """Share of the runs of a source inside the ranges that the other sources give: the mean over sources, a fraction."""
    inside: dict[str, list[bool]] = {}
    for source, nodes, ratio in held_out(fitted):
        low, high = ratios_without(source, fitted, nodes > 1)
        inside.setdefault(source, []).append(low <= ratio <= high)
    return mean(mean(found) for found in inside.values())


@functools.cache
def held_out(fitted: bool) -> tuple[tuple[str, int, float], ...]:
    """(source, number of nodes, measured / predicted) of all held-out predictions: of a run, one with the default stack,
    and one for each hold-out with a fitted stack."""
    return tuple(
        (run.source, run.nodes, ratio) for run in residuals() for column, ratio in run.ratios if (column != DEFAULT) is fitted
    )


def quantiles(values: Sequence[float], weights: Iterable[float]) -> Ratios:
    """The weighted quantiles between which `SHARE` of the values are: linear between the values, each at the middle of its
    weight."""
    ordered = sorted(zip(values, weights, strict=True))
    sizes = np.array([weight for _, weight in ordered])
    middles = (np.cumsum(sizes) - sizes / 2) / sizes.sum()
    low, high = np.interp([(1 - SHARE) / 2, (1 + SHARE) / 2], middles, [value for value, _ in ordered])
    return float(low), float(high)
