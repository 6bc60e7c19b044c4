"""Errors of the step time along one axis: degree, number of nodes, device or precision, one row per value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holmes_sim import validation
from holmes_sim.validation import Row, Summary
from sim.errors import HolmesError
from sim.plan.plan import Plan

NUMBERS: dict[str, Callable[[Plan], int]] = {
    "tp": lambda plan: plan.config.tp,
    "pp": lambda plan: plan.config.pp,
    "nodes": lambda plan: plan.nodes,
}
"""Axis -> a number of a run. A row of its table holds the numbers from one power of two up to the next."""
NAMES: dict[str, Callable[[Plan], str]] = {
    "device": lambda plan: " + ".join(dict.fromkeys(spec.name for spec in plan.specs)),
    "precision": lambda plan: plan.workload.precision,
}
"""Axis -> a name of a run."""
AXES = (*NUMBERS, *NAMES)


def check(axes: Sequence[str]) -> None:
    """Raise HolmesError for an unknown axis."""
    for axis in axes:
        if axis not in AXES:
            raise HolmesError(f"--by {axis!r} is unknown; known: {', '.join(AXES)}")


def groups(rows: Sequence[Row], axis: str) -> dict[str, list[Row]]:
    """Label -> the simulated rows with this label, in the order of the table. Numbers are labelled `4`, or `5 to 7`."""
    runs = [(row, row.case.plan) for row in rows if row.case.plan is not None and row.error is not None]
    found: dict[str, list[Row]] = {}
    if axis in NAMES:
        for row, name in sorted(((row, NAMES[axis](plan)) for row, plan in runs), key=lambda run: run[1]):
            found.setdefault(name, []).append(row)
        return found
    numbers = {NUMBERS[axis](plan) for _, plan in runs}
    for digits in sorted({number.bit_length() for number in numbers}):
        here = [number for number in numbers if number.bit_length() == digits]
        label = str(min(here)) if len(here) == 1 else f"{min(here)} to {max(here)}"
        found[label] = [row for row, plan in runs if NUMBERS[axis](plan) in here]
    return found


def table(rows: Sequence[Row], axis: str) -> dict[str, Summary]:
    """Label -> errors of the rows with this label."""
    return {label: validation.summary(some, one_source=False) for label, some in groups(rows, axis).items()}


def facts(rows: Sequence[Row], axes: Sequence[str]) -> dict[str, Any]:
    """Tables as plain data, as `holmes-sim validate --by AXIS --json` prints them."""
    return {axis: {label: validation.summary_facts(one) for label, one in table(rows, axis).items()} for axis in axes}
