"""Residuals of held-out runs: `python -m benchmarks residuals` writes `holmes_sim/residuals.csv`, in ten minutes on two cores.

The runs are those of validation/, of validation/layouts and of validation/new_software. To the last no number was fitted, so
they are predicted with the default constants as they are; by the evaluator, because a simulation of some takes many seconds.

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
from sim.analytic.evaluator import evaluate
from sim.hardware.stack import DEFAULT, NUMBERS, Stack
from sim.plan.plan import Plan
from sim.plan.under_stack import with_stack

HEAD = """\
# Measured / predicted step of runs that no fit saw. Written by `python -m benchmarks residuals`.
# default: constants fitted to the other sources of validation/; honest...: fits of sim/catalog/stacks without the run's group,
# empty for software whose stack has no fit.
"""
ONE_SOURCE = {
    "nanotron_2025_pipeline": "nanotron_2025", "mlperf_v51": "mlperf", "mlperf_v60": "mlperf", "mlperf_2023": "mlperf",
    "nemotron_340b": "nemotron_4", "alps_lengths": "alps_gh200", "torchtitan_elsewhere": "torchtitan",
}  # fmt: skip
"""Case file -> the case file with runs of the same software: parts of one source."""
LAYOUT = ("id", "source", "choice", "device", "tp", "pp", "nodes", "measured_s")
"""Columns that describe a run."""


def measure() -> str:
    """Text of the data file."""
    folder = validation.folder()
    published, layouts, new = (runs(path) for path in (folder, folder / "layouts", folder / "new_software"))
    fitted = published + layouts
    predicted = {residuals.DEFAULT: [*default(fitted, calibration.left_out(published)), *unfitted(new)]}
    for mode in validation.HELD_OUT:
        predicted[mode] = [row.predicted_s or 0.0 for row in validation.validate(fitted, mode)]
    choices: dict[object, int] = {}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*LAYOUT, *predicted])
    for index, case in enumerate(fitted + new):
        ratios = [
            f"{(case.measured_s or 0.0) / seconds[index]:.4f}" if index < len(seconds) else "" for seconds in predicted.values()
        ]
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


def unfitted(cases: Sequence[Case]) -> list[float]:
    """Seconds of a step as `--stack default` has them, by the evaluator."""
    return [float(s) for s in evaluate([with_stack(validation.stack_of(case, "default")[1], _plan(case)) for case in cases])]


def runs(path: Path) -> tuple[Case, ...]:
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
