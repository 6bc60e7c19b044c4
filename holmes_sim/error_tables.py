"""Errors of the step time along one axis: degree, number of nodes, device or precision, one row per value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holmes_sim import validation
from holmes_sim.validation import Row, Summary
from sim.errors import HolmesError
from sim.plan.plan import Plan

Order = tuple[int, str]
"""Position of a row in its table: a number first, then a text."""


def _devices(plan: Plan) -> str:
    return " + ".join(dict.fromkeys(spec.name for spec in plan.specs))


def _power(count: int) -> str:
    """The range between two powers of two that holds a number: `1`, `2 to 3`, `4 to 7`."""
    least = 2 ** (count.bit_length() - 1)
    return str(least) if least == 1 else f"{least} to {2 * least - 1}"


AXES: dict[str, Callable[[Plan], Order]] = {
    "tp": lambda plan: (plan.config.tp, str(plan.config.tp)),
    "pp": lambda plan: (plan.config.pp, str(plan.config.pp)),
    "nodes": lambda plan: (plan.nodes.bit_length(), _power(plan.nodes)),
    "device": lambda plan: (0, _devices(plan)),
    "precision": lambda plan: (0, plan.workload.precision),
}
"""Name of an axis -> (order, label) of a run. Numbers of nodes are grouped between powers of two."""


def check(axes: Sequence[str]) -> None:
    """Raise HolmesError for an unknown axis."""
    for axis in axes:
        if axis not in AXES:
            raise HolmesError(f"--by {axis!r} is unknown; known: {', '.join(AXES)}")


def groups(rows: Sequence[Row], axis: str) -> dict[str, tuple[Row, ...]]:
    """Label -> the simulated rows with this label, in the order of the table."""
    found: dict[Order, list[Row]] = {}
    for row in rows:
        if row.case.plan is not None and row.error is not None:
            found.setdefault(AXES[axis](row.case.plan), []).append(row)
    return {label: tuple(found[order, label]) for order, label in sorted(found)}


def table(rows: Sequence[Row], axis: str) -> dict[str, Summary]:
    """Label -> errors of the rows with this label."""
    return {label: validation.summary(some, one_source=False) for label, some in groups(rows, axis).items()}


def facts(rows: Sequence[Row], axes: Sequence[str]) -> dict[str, Any]:
    """Tables as plain data, as `holmes-sim validate --by AXIS --json` prints them."""
    return {axis: {label: validation.summary_facts(one) for label, one in table(rows, axis).items()} for axis in axes}
