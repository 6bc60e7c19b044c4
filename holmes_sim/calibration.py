"""Fit software stacks to measured runs: few numbers each, told with the runs they saw and the error on runs they did not.

A stack fits the four of `sim.stack.NUMBERS` that its runs feel most; the others stay at the default. The fit is the maximum a
posteriori of log factors: absolute relative errors (Laplace, scale `SCALE`, so that one odd run does not bend the rest) and a
normal prior around the default of width `WIDTH`, which keeps few or alike runs from saying more than they know. Sensitivities
are differences of the closed form, residuals are of the engine.

Honest errors hold out whole groups: the model families of a stack, or where there is but one its devices, or its networks.
A stack with a single group is predicted by the default."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np

from holmes_sim.validation import each
from sim.cases import Case
from sim.costs import step_seconds
from sim.documents import to_yaml
from sim.engine import simulate
from sim.plan import Plan
from sim.stack import DEFAULT, NUMBERS, Stack, applied

SCALE = 0.05
"""Typical absolute relative error of a run under a right stack."""
WIDTH = 0.2
"""Typical distance of a stack from the default, in logarithms."""
FITTED = 4
"""Numbers a stack may fit."""
ROUNDS = 2
"""Times the residuals are played anew at the fit."""
DIFFERENCE = 0.05


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A fit that never saw the cases of one group."""

    group: str
    cases: tuple[str, ...]
    stack: Stack


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted stack: which numbers, on which cases, mean absolute errors before, after, and on groups left out."""

    name: str
    numbers: tuple[str, ...]
    stack: Stack
    cases: tuple[str, ...]
    held_out: tuple[HeldOut, ...]
    default_error: float
    error: float
    honest_error: float


def calibrate(found: Sequence[Case], progress: Callable[[str], None] = lambda text: None) -> tuple[Fit, ...]:
    """Fit every stack that the cases name. Cases that cannot be simulated are passed over."""
    stacks: dict[str, list[Case]] = {}
    for case in found:
        if case.plan is not None:
            stacks.setdefault(case.stack, []).append(case)
    return tuple(_calibrate(name, cases, progress) for name, cases in stacks.items())


def groups(cases: Sequence[Case]) -> tuple[str, ...]:
    """The group of every case: model family (hidden size), else devices, else networks; all alike where there is but one."""
    for label in (_family, _devices, _network):
        labels = tuple(label(case) for case in cases)
        if len(set(labels)) > 1:
            return labels
    return ("all",) * len(cases)


def _plan(case: Case) -> Plan:
    assert case.plan is not None
    return case.plan


def _family(case: Case) -> str:
    return f"hidden {_plan(case).workload.model.hidden}"


def _devices(case: Case) -> str:
    return " ".join(cluster.node.device.name for cluster in _plan(case).fleet.clusters)


def _network(case: Case) -> str:
    kinds = {"one node" if group.nic == "intra_node" else group.nic for group in _plan(case).groups}
    return " ".join(sorted(kinds - {"one node"})) or "one node"


def _calibrate(name: str, cases: list[Case], progress: Callable[[str], None]) -> Fit:
    plans = [_plan(case) for case in cases]
    measured = np.log([case.measured_s for case in cases])
    slopes = _slopes(plans, lambda text: progress(f"{name}: {text}"))
    felt = np.argsort(-np.abs(slopes).mean(axis=0), kind="stable")[:FITTED]
    chosen = np.array(sorted(felt.tolist()))
    labels = groups(cases)
    folds = tuple(dict.fromkeys(labels)) if len(set(labels)) > 1 else ()
    factors = {fold: np.zeros(len(NUMBERS)) for fold in (*folds, "")}
    at_default = _play(plans, [DEFAULT] * len(plans), lambda text: progress(f"{name}: {text}")) - measured
    residuals, where = at_default, np.zeros((len(plans), len(NUMBERS)))
    for turn in range(ROUNDS):
        linear = residuals - np.sum(slopes * where, axis=1)
        for fold in factors:
            seen = np.array([label != fold for label in labels])
            factors[fold] = _posterior(slopes[seen], linear[seen], chosen)
        where = np.tile(factors[""], (len(plans), 1))
        if turn + 1 < ROUNDS:
            residuals = _play(plans, [_stack(factors[""])] * len(plans), lambda text: progress(f"{name}: {text}")) - measured
    fitted = _play(plans, [_stack(factors[""])] * len(plans)) - measured
    honest = _play(plans, [_stack(factors[label]) if folds else DEFAULT for label in labels]) - measured
    held_out = tuple(
        HeldOut(fold, tuple(case.id for case, label in zip(cases, labels, strict=True) if label == fold), _stack(factors[fold]))
        for fold in folds
    )
    errors = [_error(residual) for residual in (at_default, fitted, honest)]
    numbers = tuple(NUMBERS[index] for index in chosen)
    return Fit(name, numbers, _stack(factors[""]), tuple(case.id for case in cases), held_out, *errors)


def _error(residuals: np.ndarray) -> float:
    return float(np.mean(np.abs(np.expm1(residuals))))


def _stack(factors: np.ndarray) -> Stack:
    """Log factors on the default as a stack, to three digits."""
    values = {name: getattr(DEFAULT, name) * math.exp(factor) for name, factor in zip(NUMBERS, factors, strict=True)}
    return Stack(**{name: float(f"{value:.3g}") for name, value in values.items()})


def _play(plans: list[Plan], stacks: list[Stack], progress: Callable[[str], None] = lambda text: None) -> np.ndarray:
    """Logarithm of the engine's seconds of a step."""
    return np.log(each(_engine, list(zip(stacks, plans, strict=True)), progress))


def _engine(pair: tuple[Stack, Plan]) -> float:
    return simulate(applied(*pair)).step_s


def _closed(pair: tuple[Stack, Plan]) -> float:
    return step_seconds(applied(*pair))


def _slopes(plans: list[Plan], progress: Callable[[str], None]) -> np.ndarray:
    """Change of log seconds with each log factor, one row for each plan."""
    stacks = [DEFAULT] + [_stack(DIFFERENCE * np.eye(len(NUMBERS))[index]) for index in range(len(NUMBERS))]
    pairs = [(stack, plan) for plan in plans for stack in stacks]
    seconds = np.log(each(_closed, pairs, progress)).reshape(len(plans), len(stacks))
    steps = [math.log(getattr(stack, name) / getattr(DEFAULT, name)) for name, stack in zip(NUMBERS, stacks[1:], strict=True)]
    found: np.ndarray = (seconds[:, 1:] - seconds[:, :1]) / np.array(steps)
    return found


def _posterior(slopes: np.ndarray, residuals: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Log factors that best explain residuals + slopes x factors = 0, by reweighted least squares."""
    felt, factors = slopes[:, chosen], np.zeros(slopes.shape[1])
    for _ in range(100):
        weights = 1 / (SCALE * np.maximum(np.abs(residuals + slopes @ factors), 0.2 * SCALE))
        normal = felt.T @ (felt * weights[:, None]) + np.eye(len(chosen)) / WIDTH**2
        factors[chosen] = -np.linalg.solve(normal, felt.T @ (weights * residuals))
    return factors


def written(fit: Fit) -> dict[str, object]:
    """A fit as it stands in a stack file."""
    return {
        "format": "holmes-sim/stack/1",
        "name": fit.name,
        "fitted": _numbers(fit.stack, fit.numbers),
        "error": {
            "default": round(fit.default_error, 4),
            "fitted": round(fit.error, 4),
            "held_out": round(fit.honest_error, 4),
        },
        "cases": list(fit.cases),
        "held_out": [
            {"group": one.group, "fitted": _numbers(one.stack, fit.numbers), "cases": list(one.cases)} for one in fit.held_out
        ],
    }


def text(fit: Fit) -> str:
    """A fit as a stack file."""
    return to_yaml(written(fit))


def _numbers(stack: Stack, names: Sequence[str]) -> dict[str, float | str]:
    return {
        name: f"{getattr(stack, name) * 1e3:.3g} ms" if name in ("launch", "step") else getattr(stack, name) for name in names
    }


def macro(fits: Sequence[Fit]) -> tuple[float, float, float]:
    """Mean over stacks of (default, fitted, honest) errors."""
    return mean(f.default_error for f in fits), mean(f.error for f in fits), mean(f.honest_error for f in fits)
