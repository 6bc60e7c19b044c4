"""Residuals of held-out runs: `python -m benchmarks residuals` writes `holmes_sim/residuals.csv`, in ten minutes on two cores.

Run it after every change of a constant, of a stack file or of the cost model: the ranges of `holmes_sim.intervals` and the
resolution of `holmes_sim.resolution` are computed from this file. `python -m benchmarks ranges` shows how good they are.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import holmes_sim
from holmes_sim import calibration, residuals, validation
from holmes_sim.cases import Case
from holmes_sim.posterior import log_steps
from sim.hardware.stack import DEFAULT, NUMBERS, Stack
from sim.plan.plan import Plan

HEAD = """\
# Measured / predicted step of runs that no fit saw. Written by `python -m benchmarks residuals`.
# default: constants fitted to the other sources of validation/; honest...: fits of sim/catalog/stacks without the run's group.
"""
ONE_SOURCE = {"nanotron_2025_pipeline": "nanotron_2025"}
"""Case file -> the case file with runs of the same publication and software: two halves of one source."""
LAYOUT = ("id", "source", "choice", "device", "tp", "pp", "nodes", "measured_s")
"""Columns that describe a run."""


def measure() -> str:
    """Text of the data file."""
    published, layouts = (_runs(path) for path in (validation.folder(), validation.folder() / "layouts"))
    everything = published + layouts
    predicted = {residuals.DEFAULT: default(everything, calibration.left_out(published))}
    for mode in validation.HELD_OUT:
        predicted[mode] = [row.predicted_s or 0.0 for row in validation.validate(everything, mode)]
    choices: dict[object, int] = {}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*LAYOUT, *predicted])
    for index, case in enumerate(everything):
        ratios = [f"{(case.measured_s or 0.0) / seconds[index]:.4f}" for seconds in predicted.values()]
        writer.writerow([*_layout(case, choices), *ratios])
    return HEAD + out.getvalue()


def default(cases: Sequence[Case], others: Mapping[str, Stack]) -> list[float]:
    """Seconds of a step with the numbers that were fitted to the other sources (source -> stack; the default ones where there
    are none), and with the facts of the case's software, as `--stack default` has them."""
    stacks = []
    for case in cases:
        numbers = others.get(case.source, DEFAULT)
        facts = validation.stack_of(case, "default")[1]
        stacks.append(replace(facts, **{name: getattr(numbers, name) for name in NUMBERS}))
    return [float(seconds) for seconds in np.exp(log_steps([_plan(case) for case in cases], stacks))]


def _runs(path: Path) -> tuple[Case, ...]:
    """Cases of a folder that can be simulated and have a measured step."""
    return tuple(case for case in validation.read([path]) if case.plan is not None and case.measured_s is not None)


def _plan(case: Case) -> Plan:
    assert case.plan is not None
    return case.plan


def _layout(case: Case, choices: dict[object, int]) -> tuple[object, ...]:
    """Values of the columns `LAYOUT`; `choices` numbers the choices met so far."""
    plan = _plan(case)
    device = " + ".join(spec.name for spec in plan.specs)
    source = ONE_SOURCE.get(case.source, case.source)
    software = case.stack if source not in ONE_SOURCE.values() else source
    key = (source, software, plan.workload, device, plan.nodes)
    choice = choices.setdefault(key, len(choices))
    return case.id, source, choice, device, plan.config.tp, plan.config.pp, plan.nodes, f"{case.measured_s:.6g}"


def show() -> None:
    """Write the data file."""
    path = Path(holmes_sim.__file__).parent / residuals.FILE
    path.write_text(measure(), encoding="utf-8")
    print(f"Written to {path}.")
