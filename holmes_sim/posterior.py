"""Maximum a posteriori fit of the constants of a software stack to measured step times.

An unknown is the logarithm of a factor on the start value of a constant (that of the default stack, unless the caller has
another) or, for the constants of `SCALES`, a multiple of these. The likelihood of the relative errors is Laplace's (scale
`SCALE`), so that one outlier has little influence. The prior is normal around the start (width `WIDTH`, or 1 for a multiple of
`SCALES`), so that few or similar runs do not move the constants far.
The estimate is found by the Gauss-Newton method: sensitivities are finite differences of the closed form, taken again at the
solution until the step times are linear between the two."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from holmes_sim.processes import each
from sim.analytic.plan_costs import step_seconds
from sim.engine.engine import simulate
from sim.hardware.stack import DEFAULT, Stack
from sim.plan.plan import Plan
from sim.plan.under_stack import with_stack

SCALE = 0.05
"""Scale of the Laplace likelihood: typical relative error of a run with the right constants. Guess; larger trusts runs less."""
WIDTH = 0.2
"""Standard deviation of the prior: typical distance of a log factor from the default. Guess; larger trusts runs more."""
DIFFERENCE = 0.05
"""Step of the finite differences of an unknown. Guess."""
SCALES = {"launch_per_rank": 1e-3, "network_delay": 20e-6, "update_bytes": 100.0}
"""Typical sizes of the constants whose default is 0, for the prior. Guesses."""
MOST = {"gemm": 1.1, "attention_newest": 1.1, "elementwise": 1.1, "communication": 1.1}
"""Largest values of fitted shares, so that no fit is faster than what was ever measured. gemm: the fitted curves have 0.91 of
the best measured product on A100, H100 and B200 (stas00/ml-engineering, compute/accelerator). attention_newest: the rates of
the catalogue at the clock of a short loop, which is 1 / 0.9 of that of a long run (`GemmCurve.sustained`). elementwise: 0.88 to
0.94 of the bandwidth; the best measured copy is 0.85 on A100 (FlagOpen/FlagPerf), the rest a margin (guess). communication:
collectives of 512 MiB and more over InfiniBand and NVLink of A100, H100 and H200 are measured at most 1.1 times as fast as
predicted (`python -m benchmarks collectives`: all_gather on 32 nodes)."""
LINEAR = 0.02
"""Mean error of a linearised log step time at which sensitivities are taken again. Guess; smaller takes more rounds."""
ROUNDS = 6
"""Most rounds of the Gauss-Newton method."""


def _value(name: str, unknown: float, default: Stack) -> float:
    """Value of a constant, rounded to three digits."""
    start: float = getattr(default, name)
    value = max(0.0, start + SCALES[name] * unknown) if name in SCALES else start * math.exp(unknown)
    return float(f"{value:.3g}")


def stack_at(numbers: Sequence[str], unknowns: np.ndarray, default: Stack) -> Stack:
    """The stack with the constants `numbers` at the given unknowns, which are 0 at `default`."""
    found: dict[str, Any] = {name: _value(name, unknown, default) for name, unknown in zip(numbers, unknowns, strict=True)}
    return replace(default, **found)


def log_steps(plans: list[Plan], stacks: list[Stack], progress: Callable[[str], None] = lambda text: None) -> np.ndarray:
    """Logarithm of the simulated step time of each plan with its stack."""
    return np.log(each(_engine, list(zip(stacks, plans, strict=True)), progress))


def _engine(pair: tuple[Stack, Plan]) -> float:
    return simulate(with_stack(*pair)).step_s


def _closed(pair: tuple[Stack, Plan]) -> float:
    return step_seconds(with_stack(*pair))


def closed_logs(plans: list[Plan], stacks: list[Stack], progress: Callable[[str], None] = lambda text: None) -> np.ndarray:
    """Logarithm of the step time of each plan with its stack, by the closed form."""
    return np.log(each(_closed, list(zip(stacks, plans, strict=True)), progress))


def sensitivities(
    plans: list[Plan],
    default: Stack,
    numbers: Sequence[str],
    point: np.ndarray,
    progress: Callable[[str], None] = lambda text: None,
) -> np.ndarray:
    """Derivative of the log step time by each unknown (plans x constants), by finite differences of the closed form."""
    shifted = [stack_at(numbers, point + DIFFERENCE * row, default) for row in np.eye(len(numbers))]
    stacks = [stack_at(numbers, point, default), *shifted]
    pairs = [(stack, plan) for plan in plans for stack in stacks]
    seconds = np.log(each(_closed, pairs, progress)).reshape(len(plans), len(stacks))
    steps = [_unknown(name, stack) - _unknown(name, stacks[0]) for name, stack in zip(numbers, shifted, strict=True)]
    found: np.ndarray = (seconds[:, 1:] - seconds[:, :1]) / np.array(steps)
    return found


def _unknown(name: str, stack: Stack) -> float:
    """The unknown of a constant, relative to `DEFAULT`; differences of two do not depend on that."""
    value: float = getattr(stack, name)
    return value / SCALES[name] if name in SCALES else math.log(value / getattr(DEFAULT, name))


def posterior(
    slopes: np.ndarray,
    residuals: np.ndarray,
    numbers: Sequence[str],
    counts: np.ndarray | None = None,
    start: Stack = DEFAULT,
) -> np.ndarray:
    """Unknowns of the constants that minimise |residuals + slopes x unknowns| and the prior; multiples of `SCALES` are >= 0,
    and shares at most `MOST`.

    Iteratively reweighted least squares for the Laplace likelihood; `counts` are weights of the runs, and the unknowns are 0 at
    `start`.
    """
    found, most = np.zeros(len(numbers)), largest(numbers, start)
    for _ in range(100):
        weights = (1.0 if counts is None else counts) / (SCALE * np.maximum(np.abs(residuals + slopes @ found), 0.2 * SCALE))
        normal = slopes.T @ (slopes * weights[:, None]) + np.diag(_prior(numbers))
        found = _bounded(normal, -slopes.T @ (weights * residuals), most)
    return np.where([name in SCALES for name in numbers], np.maximum(found, 0.0), found)


def largest(numbers: Sequence[str], start: Stack) -> np.ndarray:
    """Largest unknown of each constant, relative to `start`; infinite where `MOST` has no bound. A start beyond it is kept."""
    found = [math.log(MOST[name] / getattr(start, name)) if name in MOST else math.inf for name in numbers]
    bounds: np.ndarray = np.maximum(np.array(found), 0.0)
    return bounds


def _bounded(normal: np.ndarray, right: np.ndarray, most: np.ndarray) -> np.ndarray:
    """Solution of normal x unknowns = right. Unknowns beyond `most` are set to it, and the others solved again."""
    found: np.ndarray = most.copy()
    free = np.full(len(most), True)
    while free.any():
        moved = right[free] - normal[np.ix_(free, ~free)] @ found[~free]
        found[free] = np.linalg.solve(normal[np.ix_(free, free)], moved)
        beyond = free & (found > most)
        if not beyond.any():
            break
        found[beyond] = most[beyond]
        free &= ~beyond
    return found


def gauss_newton(
    plans: list[Plan], default: Stack, numbers: Sequence[str], residuals: np.ndarray, progress: Callable[[str], None]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(unknowns of the fit, sensitivities (plans x constants), offsets): residuals are about offsets + slopes x unknowns.

    `residuals` are those of the engine at the default; the closed form says how they change from there. Step times have kinks
    (no link is faster than its wire), so a round that makes the fit worse is the last one and does not count."""
    point, start = np.zeros(len(numbers)), closed_logs(plans, [default] * len(plans), progress)
    here, least = start, math.inf
    for _ in range(ROUNDS):
        slopes = sensitivities(plans, default, numbers, point, progress)
        offsets = residuals + here - start - slopes @ point
        found = posterior(slopes, offsets, numbers, start=default)
        there = closed_logs(plans, [stack_at(numbers, found, default)] * len(plans), progress)
        loss = _loss(residuals + there - start, found, numbers)
        if loss >= least:
            break
        best, least = (found, slopes, offsets), loss
        if float(np.mean(np.abs(there - here - slopes @ (found - point)))) < LINEAR:
            break
        point, here = found, there
    return best


def _prior(numbers: Sequence[str]) -> np.ndarray:
    """Precision of the prior of each unknown."""
    return np.array([1.0 if name in SCALES else 1 / WIDTH**2 for name in numbers])


def _loss(residuals: np.ndarray, unknowns: np.ndarray, numbers: Sequence[str]) -> float:
    """Negative logarithm of the posterior density, up to a constant."""
    return float(np.sum(np.abs(residuals)) / SCALE + np.sum(_prior(numbers) * unknowns**2) / 2)
