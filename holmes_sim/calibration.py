"""Fit the constants of software stacks to measured runs, with the error on the fitted runs and on held-out runs.

A stack fits the four constants of `sim.hardware.stack.NUMBERS` to which the step time of its runs is most sensitive; the others
stay at the default. The unknowns are logarithms of factors on the default. The fit is their maximum a posteriori estimate with
a Laplace likelihood of the relative errors (scale `SCALE`), so that one outlier has little influence, and a normal prior around
the default (width `WIDTH`), so that few or similar runs do not move the constants far. Sensitivities are finite differences of
the closed form; residuals come from the engine. `blocking` is not fitted: it is read from the stack file.

The honest error holds out whole groups of runs: model families of a stack; if it has one family, device types; if it has one
device type, networks. Each group is predicted by a fit without it, and the only group of a stack by the default."""

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
"""Scale of the Laplace likelihood: typical relative error of a run with the right constants. Guess; larger trusts runs less."""
WIDTH = 0.2
"""Standard deviation of the prior: typical distance of a log factor from the default. Guess; larger trusts runs more."""
FITTED = 4
"""Number of constants that a stack fits."""
DIFFERENCE = 0.05
"""Step of the finite differences, as a log factor. Guess."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A fit without the cases of one group."""

    group: str
    cases: tuple[str, ...]
    stack: Stack


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted stack: the names of its fitted constants, its cases, and mean absolute errors of the step time.

    `default_error` is with the default constants, `error` with the fit, `honest_error` with each group predicted by a fit
    without it.
    """

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
    """One set of constants for all stacks, fitted with equal weight for each source.

    Errors are means over sources of the mean absolute error of a source, computed with the linearised step times of the fit:
    with the default, with this set, and for each source with a set fitted to the other sources.
    """

    stack: Stack
    default_error: float
    error: float
    left_out_error: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Fits of all stacks, and one common set of constants (None if the cases have a single source)."""

    fits: tuple[Fit, ...]
    common: Common | None


def calibrate(found: Sequence[Case], progress: Callable[[str], None] = lambda text: None) -> Calibration:
    """Fit every stack that the cases name. Skips cases that cannot be simulated or have no measured step; raises HolmesError if
    none is left."""
    stacks: dict[str, list[Case]] = {}
    for case in found:
        if case.plan is not None and case.measured_s is not None:
            stacks.setdefault(case.stack, []).append(case)
    if not stacks:
        raise HolmesError("no case has a measured step and can be simulated; holmes-sim validate says why")
    fits, sensitivities = [], []
    for name, cases in stacks.items():
        fit, slopes, residuals = _calibrate(name, cases, progress)
        fits.append(fit)
        sensitivities.append((tuple(case.source for case in cases), slopes, residuals))
    return Calibration(tuple(fits), _common(sensitivities))


def _common(sensitivities: list[tuple[tuple[str, ...], np.ndarray, np.ndarray]]) -> Common | None:
    """Fit one set of constants to all sources with equal weights, and predict each source by a fit to the others.

    `sensitivities` has (source of each case, slopes, residuals at the default) per stack. None if there is one source.
    """
    of = np.array([source for sources, _, _ in sensitivities for source in sources])
    names = tuple(dict.fromkeys(of.tolist()))
    if len(names) < 2:
        return None
    slopes, residuals = np.vstack([s for _, s, _ in sensitivities]), np.concatenate([r for _, _, r in sensitivities])
    weights = np.array([len(of) / len(names) / int(np.sum(of == source)) for source in of])
    every = np.arange(len(NUMBERS))
    factors = _posterior(slopes, residuals, every, weights)
    held_out = residuals.copy()
    for name in names:
        own = of == name
        held_out[own] += slopes[own] @ _posterior(slopes[~own], residuals[~own], every, weights[~own])
    errors = [mean(_error(r[of == name]) for name in names) for r in (residuals, residuals + slopes @ factors, held_out)]
    return Common(_stack(factors), *errors)


def groups(cases: Sequence[Case]) -> tuple[str, ...]:
    """Group label of every case: the first of hidden size, device types and networks that differs, else "all"."""
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


def _measured(case: Case) -> float:
    assert case.measured_s is not None
    return case.measured_s


def _devices(case: Case) -> str:
    return " ".join(cluster.node.device.name for cluster in _plan(case).fleet.clusters)


def _network(case: Case) -> str:
    kinds = {"one node" if group.nic == "intra_node" else group.nic for group in _plan(case).groups}
    return " ".join(sorted(kinds - {"one node"})) or "one node"


def _calibrate(name: str, cases: list[Case], progress: Callable[[str], None]) -> tuple[Fit, np.ndarray, np.ndarray]:
    """The fit of a stack, the sensitivities (cases x constants), and the residuals at the default (log seconds)."""
    plans = [_plan(case) for case in cases]
    measured = np.log([_measured(case) for case in cases])
    blocking = name in catalog.names("stacks") and catalog.stack_facts(name).blocking
    default = replace(DEFAULT, blocking=blocking)
    slopes = _slopes(plans, default, lambda text: progress(f"{name}: {text}"))
    strongest = np.argsort(-np.abs(slopes).mean(axis=0), kind="stable")[:FITTED]
    chosen = np.array(sorted(strongest.tolist()))
    labels = groups(cases)
    folds = tuple(dict.fromkeys(labels)) if len(set(labels)) > 1 else ()
    factors = {fold: np.zeros(len(NUMBERS)) for fold in (*folds, "")}
    at_default = _log_steps(plans, [default] * len(plans), lambda text: progress(f"{name}: {text}")) - measured
    for fold in factors:
        seen = np.array([label != fold for label in labels])
        factors[fold] = _posterior(slopes[seen], at_default[seen], chosen)
    stacks = {fold: _stack(factors[fold], default) for fold in factors}
    fitted = _log_steps(plans, [stacks[""]] * len(plans)) - measured
    honest = _log_steps(plans, [stacks[label] if folds else default for label in labels]) - measured
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
    """The stack with the constants of `DEFAULT` multiplied by exp(factors), rounded to three digits."""
    values = {name: getattr(DEFAULT, name) * math.exp(factor) for name, factor in zip(NUMBERS, factors, strict=True)}
    numbers: dict[str, Any] = {name: float(f"{value:.3g}") for name, value in values.items()}
    return replace(default, **numbers)


def _log_steps(plans: list[Plan], stacks: list[Stack], progress: Callable[[str], None] = lambda text: None) -> np.ndarray:
    """Logarithm of the simulated step time of each plan with its stack."""
    return np.log(each(_engine, list(zip(stacks, plans, strict=True)), progress))


def _engine(pair: tuple[Stack, Plan]) -> float:
    return simulate(with_stack(*pair)).step_s


def _closed(pair: tuple[Stack, Plan]) -> float:
    return step_seconds(with_stack(*pair))


def _slopes(plans: list[Plan], default: Stack, progress: Callable[[str], None]) -> np.ndarray:
    """Derivative of the log step time by each log factor (plans x constants), by finite differences of the closed form."""
    stacks = [default] + [_stack(DIFFERENCE * np.eye(len(NUMBERS))[index], default) for index in range(len(NUMBERS))]
    pairs = [(stack, plan) for plan in plans for stack in stacks]
    seconds = np.log(each(_closed, pairs, progress)).reshape(len(plans), len(stacks))
    steps = [math.log(getattr(stack, name) / getattr(DEFAULT, name)) for name, stack in zip(NUMBERS, stacks[1:], strict=True)]
    found: np.ndarray = (seconds[:, 1:] - seconds[:, :1]) / np.array(steps)
    return found


def _posterior(slopes: np.ndarray, residuals: np.ndarray, chosen: np.ndarray, counts: np.ndarray | None = None) -> np.ndarray:
    """Log factors of the chosen constants that minimise |residuals + slopes x factors| and the prior; the others stay 0.

    Iteratively reweighted least squares for the Laplace likelihood; `counts` are weights of the runs.
    """
    selected, factors = slopes[:, chosen], np.zeros(slopes.shape[1])
    for _ in range(100):
        weights = (1.0 if counts is None else counts) / (SCALE * np.maximum(np.abs(residuals + slopes @ factors), 0.2 * SCALE))
        normal = selected.T @ (selected * weights[:, None]) + np.eye(len(chosen)) / WIDTH**2
        factors[chosen] = -np.linalg.solve(normal, selected.T @ (weights * residuals))
    return factors


def written(fit: Fit) -> dict[str, object]:
    """A fit as the plain data of a stack file."""
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
    """A fit as the text of a stack file."""
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
