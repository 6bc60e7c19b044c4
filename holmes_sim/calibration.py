"""Fit software stacks to measured runs: few numbers each, told with the runs they saw and the error on runs they did not.

A stack fits the four of `sim.hardware.stack.NUMBERS` that its runs feel most; the others stay at the default. The fit is the
maximum a posteriori of log factors: absolute relative errors (Laplace, scale `SCALE`, so that one odd run does not bend the
rest) and a normal prior around the default of width `WIDTH`, which keeps few or alike runs from saying more than they know.
Sensitivities are differences of the closed form, residuals are of the engine. Whether a stack's launches block (`blocking`) is
known, not fitted: it is kept from the stack's file.

Honest errors hold out whole groups: the model families of a stack, or where there is but one its devices, or its networks.
A stack with a single group is predicted by the default."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

import numpy as np

from holmes_sim.cases import Case
from holmes_sim.validation import each
from sim.analytic.plan_costs import step_seconds
from sim.engine.engine import simulate
from sim.errors import HolmesError
from sim.formats import catalog
from sim.formats.documents import to_yaml
from sim.hardware.stack import DEFAULT, NUMBERS, Stack
from sim.plan.plan import Plan, with_stack

SCALE = 0.05
"""Typical absolute relative error of a run under a right stack."""
WIDTH = 0.2
"""Typical distance of a stack from the default, in logarithms."""
FITTED = 4
"""Numbers a stack may fit."""
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


@dataclass(frozen=True, slots=True)
class Common:
    """One set of numbers for all stacks, each source of equal weight, and how such a set does on a source it did not see.

    Errors are means over sources of each source's mean absolute error, by the linear form of the fit.
    """

    stack: Stack
    default_error: float
    error: float
    left_out_error: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """All stacks fitted, and one set for everything (None where the cases are of a single source)."""

    fits: tuple[Fit, ...]
    common: Common | None


def calibrate(found: Sequence[Case], progress: Callable[[str], None] = lambda text: None) -> Calibration:
    """Fit every stack that the cases name. Cases that cannot be simulated are passed over; raises HolmesError if all are."""
    stacks: dict[str, list[Case]] = {}
    for case in found:
        if case.plan is not None:
            stacks.setdefault(case.stack, []).append(case)
    if not stacks:
        raise HolmesError("none of the cases can be simulated; holmes-sim validate says why")
    fits, felt = [], []
    for name, cases in stacks.items():
        fit, slopes, residuals = _calibrate(name, cases, progress)
        fits.append(fit)
        felt.append((tuple(case.source for case in cases), slopes, residuals))
    return Calibration(tuple(fits), _common(felt))


def _common(felt: list[tuple[tuple[str, ...], np.ndarray, np.ndarray]]) -> Common | None:
    """The set that all sources, of equal weight, agree on, and what the others say of each."""
    of = np.array([source for sources, _, _ in felt for source in sources])
    names = tuple(dict.fromkeys(of.tolist()))
    if len(names) < 2:
        return None
    slopes, residuals = np.vstack([s for _, s, _ in felt]), np.concatenate([r for _, _, r in felt])
    weights = np.array([len(of) / len(names) / int(np.sum(of == source)) for source in of])
    every = np.arange(len(NUMBERS))
    factors = _posterior(slopes, residuals, every, weights)
    apart = residuals.copy()
    for name in names:
        mine = of == name
        apart[mine] += slopes[mine] @ _posterior(slopes[~mine], residuals[~mine], every, weights[~mine])
    errors = [mean(_error(r[of == name]) for name in names) for r in (residuals, residuals + slopes @ factors, apart)]
    return Common(_stack(factors), *errors)


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


def _calibrate(name: str, cases: list[Case], progress: Callable[[str], None]) -> tuple[Fit, np.ndarray, np.ndarray]:
    """The fit, the sensitivities of its cases, and their residuals at the default."""
    plans = [_plan(case) for case in cases]
    measured = np.log([case.measured_s for case in cases])
    blocking = name in catalog.names("stacks") and catalog.stack_facts(name).blocking
    default = replace(DEFAULT, blocking=blocking)
    slopes = _slopes(plans, default, lambda text: progress(f"{name}: {text}"))
    felt = np.argsort(-np.abs(slopes).mean(axis=0), kind="stable")[:FITTED]
    chosen = np.array(sorted(felt.tolist()))
    labels = groups(cases)
    folds = tuple(dict.fromkeys(labels)) if len(set(labels)) > 1 else ()
    factors = {fold: np.zeros(len(NUMBERS)) for fold in (*folds, "")}
    at_default = _play(plans, [default] * len(plans), lambda text: progress(f"{name}: {text}")) - measured
    for fold in factors:
        seen = np.array([label != fold for label in labels])
        factors[fold] = _posterior(slopes[seen], at_default[seen], chosen)
    stacks = {fold: _stack(factors[fold], default) for fold in factors}
    fitted = _play(plans, [stacks[""]] * len(plans)) - measured
    honest = _play(plans, [stacks[label] if folds else default for label in labels]) - measured
    held_out = tuple(
        HeldOut(fold, tuple(case.id for case, label in zip(cases, labels, strict=True) if label == fold), stacks[fold])
        for fold in folds
    )
    errors = [_error(residual) for residual in (at_default, fitted, honest)]
    numbers = tuple(NUMBERS[index] for index in chosen)
    fit = Fit(name, numbers, stacks[""], tuple(case.id for case in cases), held_out, *errors)
    return fit, slopes, at_default


def _error(residuals: np.ndarray) -> float:
    return float(np.mean(np.abs(np.expm1(residuals))))


def _stack(factors: np.ndarray, default: Stack = DEFAULT) -> Stack:
    """Log factors on the default's numbers as a stack, to three digits."""
    values = {name: getattr(DEFAULT, name) * math.exp(factor) for name, factor in zip(NUMBERS, factors, strict=True)}
    numbers: dict[str, Any] = {name: float(f"{value:.3g}") for name, value in values.items()}
    return replace(default, **numbers)


def _play(plans: list[Plan], stacks: list[Stack], progress: Callable[[str], None] = lambda text: None) -> np.ndarray:
    """Logarithm of the engine's seconds of a step."""
    return np.log(each(_engine, list(zip(stacks, plans, strict=True)), progress))


def _engine(pair: tuple[Stack, Plan]) -> float:
    return simulate(with_stack(*pair)).step_s


def _closed(pair: tuple[Stack, Plan]) -> float:
    return step_seconds(with_stack(*pair))


def _slopes(plans: list[Plan], default: Stack, progress: Callable[[str], None]) -> np.ndarray:
    """Change of log seconds with each log factor, one row for each plan."""
    stacks = [default] + [_stack(DIFFERENCE * np.eye(len(NUMBERS))[index], default) for index in range(len(NUMBERS))]
    pairs = [(stack, plan) for plan in plans for stack in stacks]
    seconds = np.log(each(_closed, pairs, progress)).reshape(len(plans), len(stacks))
    steps = [math.log(getattr(stack, name) / getattr(DEFAULT, name)) for name, stack in zip(NUMBERS, stacks[1:], strict=True)]
    found: np.ndarray = (seconds[:, 1:] - seconds[:, :1]) / np.array(steps)
    return found


def _posterior(slopes: np.ndarray, residuals: np.ndarray, chosen: np.ndarray, counts: np.ndarray | None = None) -> np.ndarray:
    """Log factors that best explain residuals + slopes x factors = 0, by reweighted least squares; a run may count more."""
    felt, factors = slopes[:, chosen], np.zeros(slopes.shape[1])
    for _ in range(100):
        weights = (1.0 if counts is None else counts) / (SCALE * np.maximum(np.abs(residuals + slopes @ factors), 0.2 * SCALE))
        normal = felt.T @ (felt * weights[:, None]) + np.eye(len(chosen)) / WIDTH**2
        factors[chosen] = -np.linalg.solve(normal, felt.T @ (weights * residuals))
    return factors


def written(fit: Fit) -> dict[str, object]:
    """A fit as it stands in a stack file."""
    return {
        "format": "holmes-sim/stack/1",
        "name": fit.name,
        **({"blocking": True} if fit.stack.blocking else {}),
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


def facts(fitted: Calibration) -> dict[str, object]:
    """What `holmes-sim calibrate --json` prints."""
    found: dict[str, object] = {"stacks": [written(fit) for fit in fitted.fits]}
    if (common := fitted.common) is not None:
        errors = {"default": common.default_error, "fitted": common.error, "source_left_out": common.left_out_error}
        found["common"] = {"fitted": _numbers(common.stack, NUMBERS), "error": errors}
    return found


def _numbers(stack: Stack, names: Sequence[str]) -> dict[str, float | str]:
    return {
        name: f"{getattr(stack, name) * 1e3:.3g} ms" if name in ("launch", "step") else getattr(stack, name) for name in names
    }
