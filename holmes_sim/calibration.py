"""Fit the constants of software stacks to measured runs, with the error on the fitted runs and on held-out runs.

A stack fits four constants of `sim.hardware.stack.NUMBERS`: those that its file names, or else those of `USUAL` to which the
step time of its runs is most sensitive; the others stay at the default (`holmes_sim.posterior`). Residuals are the engine's.
Facts such as `blocking` are not fitted: they are read from the stack file.

The honest error holds out whole groups of runs: model families of a stack; if it has one family, device types; if it has one
device type, networks. Each group is predicted by a fit without it, and the only group of a stack by the default. Besides, each
tensor-parallel degree, each pipeline degree and each number of nodes is held out in turn. Fits without a group take the
sensitivities of the full fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from holmes_sim.cases import Case
from holmes_sim.pooled_fit import USUAL, Common, Linear, common, joined, mean_error, unknowns
from holmes_sim.posterior import gauss_newton, log_steps, posterior, sensitivities, stack_at
from sim.errors import HolmesError
from sim.formats import catalog
from sim.formats.documents import to_yaml
from sim.formats.stack_facts import written_facts
from sim.hardware.stack import DEFAULT, NUMBERS, TIMES, Stack
from sim.plan.plan import Plan
from sim.units import time_text

FORMAT = "holmes-sim/calibration/1"
FITTED = 4
"""Number of constants that a stack fits."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A fit without the cases of one group; `axis` says what the cases of the group share (`AXES`), or that it is a "run"."""

    axis: str
    group: str
    cases: tuple[str, ...]
    stack: Stack


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted stack: the names of its fitted constants, its cases, and mean absolute errors of the step time.

    `default_error` is with the default constants, `error` with the fit, `honest_error` with each group of the axis "model" (or
    "run") predicted by a fit without it. `named` says that the stack file names the constants.
    """

    name: str
    named: bool
    numbers: tuple[str, ...]
    stack: Stack
    cases: tuple[str, ...]
    held_out: tuple[HeldOut, ...]
    default_error: float
    error: float
    honest_error: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Fits of all stacks, and one common set of constants (None if the cases have a single source)."""

    fits: tuple[Fit, ...]
    common: Common | None


def calibrate(found: Sequence[Case], progress: Callable[[str], None] = lambda text: None) -> Calibration:
    """Fit every stack that the cases name. Skips cases that cannot be simulated or have no measured step; raises HolmesError if
    none is left."""
    stacks = _by_stack(found)
    if not stacks:
        raise HolmesError("no case has a measured step and can be simulated; holmes-sim validate says why")
    fits, linear = [], []
    for name, cases in stacks.items():
        fit, own = _calibrate(name, cases, progress)
        fits.append(fit)
        linear.append(own)
    return Calibration(tuple(fits), common(joined(linear)))


def left_out(found: Sequence[Case], progress: Callable[[str], None] = lambda text: None) -> dict[str, Stack]:
    """For each source, the common set of constants fitted to the other sources. `found` must be of two sources or more."""
    linear = joined([_linearised(name, cases, _facts(name)[0], progress) for name, cases in _by_stack(found).items()])
    return {source: stack_at(USUAL, unknowns(linear, linear.of != source), DEFAULT) for source in linear.sources}


def _by_stack(found: Sequence[Case]) -> dict[str, list[Case]]:
    """Stack -> its cases that can be simulated and have a measured step."""
    stacks: dict[str, list[Case]] = {}
    for case in found:
        if case.plan is not None and case.measured_s is not None:
            stacks.setdefault(case.stack, []).append(case)
    return stacks


AXES: dict[str, Callable[[Case], str]] = {
    "tp": lambda case: f"tp {_plan(case).config.tp}",
    "pp": lambda case: f"pp {_plan(case).config.pp}",
    "nodes": lambda case: f"{_plan(case).nodes} nodes",
}
"""What is held out, besides `groups` (the axis "model")."""


def groups(cases: Sequence[Case]) -> tuple[str, ...]:
    """Group label of every case: the first of hidden size, device types and networks that differs, else "all"."""
    for label in (_family, _devices, _network):
        labels = tuple(label(case) for case in cases)
        if len(set(labels)) > 1:
            return labels
    return ("all",) * len(cases)


def _folds(cases: Sequence[Case], single: bool) -> dict[str, tuple[str, ...]]:
    """Axis -> group label of every case, for each axis with more than one group; only the axis "run" with `single`."""
    if single:
        labels = {"run": tuple(case.id for case in cases)}
    else:
        labels = {"model": groups(cases)} | {axis: tuple(map(label, cases)) for axis, label in AXES.items()}
    return {axis: found for axis, found in labels.items() if len(set(found)) > 1}


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


def _linearised(name: str, cases: list[Case], default: Stack, progress: Callable[[str], None]) -> Linear:
    """The cases of a stack, linearised at `default`."""

    def report(text: str) -> None:
        progress(f"{name}: {text}")

    plans = [_plan(case) for case in cases]
    usual = sensitivities(plans, default, USUAL, np.zeros(len(USUAL)), report)
    residuals = log_steps(plans, [default] * len(plans), report) - np.log([_measured(case) for case in cases])
    return Linear(np.array([case.source for case in cases]), usual, residuals)


def fit_runs(name: str, cases: Sequence[Case], start: Stack, progress: Callable[[str], None] = lambda text: None) -> Fit:
    """A stack fitted to runs of one's own, with the prior around the stack `start`, whose error is `default_error`; each run is
    held out in turn."""
    fit = _calibrate(name, list(cases), progress, start)[0]
    written = (number for number in NUMBERS if number in fit.numbers or getattr(start, number) != getattr(DEFAULT, number))
    return replace(fit, numbers=tuple(written))


def _calibrate(name: str, cases: list[Case], progress: Callable[[str], None], start: Stack | None = None) -> tuple[Fit, Linear]:
    """The fit of a stack, and its cases linearised at the default.

    With `start`, that is the default, and single cases are held out."""

    def report(text: str) -> None:
        progress(f"{name}: {text}")

    plans = [_plan(case) for case in cases]
    measured = np.log([_measured(case) for case in cases])
    default, named = _facts(name) if start is None else (start, ())
    linear = _linearised(name, cases, default, progress)
    usual, at_default = linear.slopes, linear.residuals
    strongest = np.argsort(-np.abs(usual).mean(axis=0), kind="stable")[:FITTED]
    numbers = named or tuple(USUAL[index] for index in sorted(strongest.tolist()))
    factors, slopes, offsets = gauss_newton(plans, default, numbers, at_default, report)
    stack = stack_at(numbers, factors, default)
    fitted = log_steps(plans, [stack] * len(plans), report) - measured
    held_out = []
    for axis, labels in _folds(cases, start is not None).items():
        for group in dict.fromkeys(labels):
            seen = np.array([label != group for label in labels])
            without = stack_at(numbers, posterior(slopes[seen], offsets[seen], numbers, start=default), default)
            hidden = tuple(case.id for case, label in zip(cases, labels, strict=True) if label == group)
            held_out.append(HeldOut(axis, group, hidden, without))
    families = {case: one.stack for one in held_out if one.axis in ("model", "run") for case in one.cases}
    honest = log_steps(plans, [families.get(case.id, default) for case in cases], report) - measured
    errors = [mean_error(residual) for residual in (at_default, fitted, honest)]
    ids = tuple(case.id for case in cases)
    return Fit(name, bool(named), numbers, stack, ids, tuple(held_out), *errors), linear


def _facts(name: str) -> tuple[Stack, tuple[str, ...]]:
    """(default constants with the facts of a stack, the constants that its file says to fit: () if it says none)."""
    if name not in catalog.names("stacks"):
        return DEFAULT, ()
    facts = catalog.stack_facts(name)
    return facts.unfitted(), tuple(facts.fits)


def written(fit: Fit) -> dict[str, object]:
    """A fit as the plain data of a stack file."""
    return {
        "format": "holmes-sim/stack/1",
        "name": fit.name,
        **written_facts(fit.stack),
        **({"usual": usual} if (usual := _usual(fit.name)) else {}),
        **({"fits": list(fit.numbers)} if fit.named else {}),
        **({"sources": sources} if (sources := _sources(fit.name)) else {}),
        "fitted": _numbers(fit.stack, fit.numbers),
        "error": {
            "default": round(fit.default_error, 4),
            "fitted": round(fit.error, 4),
            "held_out": round(fit.honest_error, 4),
        },
        "cases": list(fit.cases),
        "held_out": [
            {"axis": one.axis, "group": one.group, "fitted": _numbers(one.stack, fit.numbers), "cases": list(one.cases)}
            for one in fit.held_out
        ],
    }


def _usual(name: str) -> dict[str, object]:
    return catalog.stack_facts(name).usual.model_dump(exclude_defaults=True) if name in catalog.names("stacks") else {}


def _sources(name: str) -> dict[str, str]:
    return catalog.stack_facts(name).sources if name in catalog.names("stacks") else {}


def text(fit: Fit) -> str:
    """A fit as the text of a stack file."""
    return to_yaml(written(fit))


def facts(fitted: Calibration) -> dict[str, object]:
    """What `holmes-sim calibrate --json` prints (format holmes-sim/calibration/1)."""
    found: dict[str, object] = {"format": FORMAT, "stacks": [written(fit) for fit in fitted.fits]}
    if (common := fitted.common) is not None:
        errors = {"default": common.default_error, "fitted": common.error, "source_left_out": common.left_out_error}
        found["common"] = {"fitted": _numbers(common.stack, USUAL), "error": errors}
    return found


def _numbers(stack: Stack, names: Sequence[str]) -> dict[str, float | str]:
    return {name: time_text(getattr(stack, name)) if name in TIMES else getattr(stack, name) for name in names}
