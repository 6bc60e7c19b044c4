"""How well the simulator tells two layouts apart: the predicted difference below which their order is wrong too often.

Pairs of held-out runs that differ in their layout only are ordered by predicted step; a pair is right if its measured steps
have the same order. The closer the two predictions are, the more pairs are wrong. The resolution is the predicted ratio below
which pairs are right in less than `RIGHT` of the cases: the level set of an isotonic regression of right on the ratio (Barlow
et al., Statistical Inference under Order Restrictions, 1972), which begins where the sum of (right - `RIGHT`) over all closer
pairs is least.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from itertools import combinations, groupby

import numpy as np

from holmes_sim.intervals import is_fitted
from holmes_sim.residuals import DEFAULT, Residual, residuals
from sim.plan.plan import Plan
from sim.units import Seconds

RIGHT = 0.8
"""Share of pairs that must be ordered as measured for two plans to be told apart."""
FITTED = "honest"
"""Column of predictions with a fitted stack: of two runs of one choice both are predicted with the same constants."""
Pair = tuple[float, bool]
"""Predicted ratio (1 or more) of two steps, and whether the measured steps have the same order."""


def is_close(plan: Plan, other: Plan) -> bool:
    """Whether the predicted steps of two plans for one topology differ, but too little to order the plans."""
    least, most = sorted((_step(plan), _step(other)))
    return least < most < _resolution((plan, other)) * least


def why_close(plans: Sequence[Plan]) -> str:
    """A sentence that says why plans for one topology cannot be told apart."""
    return (
        f"~ cannot be told apart: predicted differences below {_resolution(plans) - 1:.0%} are ordered wrongly in more than "
        f"one of five pairs of measured layouts."
    )


def _step(plan: Plan) -> Seconds:
    assert plan.prediction is not None
    return plan.prediction.step_s


def _resolution(plans: Sequence[Plan]) -> float:
    return resolution(is_fitted(plans[0].topology), any(plan.nodes > 1 for plan in plans))


@functools.cache
def resolution(fitted: bool, several_nodes: bool) -> float:
    """The predicted ratio of two steps, to two decimals, from which the order of two layouts is right often enough."""
    runs = [run for run in residuals() if (run.nodes > 1) is several_nodes]
    return round(least_ratio(list(pairs(runs, FITTED if fitted else DEFAULT))), 2)


def pairs(runs: Sequence[Residual], column: str) -> Iterator[Pair]:
    """All pairs of runs of one choice whose predictions of a column differ."""
    for _, choice in groupby(sorted(runs, key=_choice), _choice):
        both = [(run.measured_s / run.ratio(column), run.measured_s) for run in choice if column in run.columns]
        for one, other in combinations(both, 2):
            (quicker, measured), (slower, other_measured) = sorted((one, other))
            if slower > quicker:
                yield slower / quicker, other_measured > measured


def _choice(run: Residual) -> int:
    return run.choice


def least_ratio(found: Sequence[Pair]) -> float:
    """The ratio of the last pair below which the share of right pairs is less than `RIGHT`; 1 if there is none."""
    ordered = sorted(found)
    sums = np.cumsum([right - RIGHT for _, right in ordered])
    least = int(np.argmin(sums))
    return ordered[least][0] if sums[least] < 0 else 1.0
