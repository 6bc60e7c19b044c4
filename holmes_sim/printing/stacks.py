"""Software stacks: which numbers were fitted, and how well they do."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group
from rich.table import Table
from rich.text import Text

from holmes_sim.calibration import Calibration
from holmes_sim.printing.tables import grid
from sim.hardware.stack import DEFAULT, NUMBERS, Stack
from sim.units import time_text


def stack_table() -> Table:
    """The columns of a table of stacks; `add_stack` puts rows in."""
    table = grid("Software stacks", "name", "cases", "groups", *NUMBERS, "default", "fitted", "honest")
    table.columns[0].header = "stack"
    return table


def add_stack(
    table: Table, name: str, stack: Stack, fitted: Iterable[str], cases: int, groups: int, errors: tuple[float, float, float]
) -> None:
    """A row: the numbers that were fitted, and mean absolute errors with the default, fitted, and on groups left out."""
    shown = {number: f"{getattr(stack, number):.2f}" for number in NUMBERS[:4]}
    shown |= {number: time_text(getattr(stack, number)) for number in NUMBERS[4:]}
    numbers = [shown[number] if number in fitted else "" for number in NUMBERS]
    table.add_row(name, str(cases), str(groups or ""), *numbers, *(f"{error:.1%}" for error in errors))


def calibrated(fitted: Calibration) -> Group:
    """The numbers of every fitted stack, and its error before, after, and on groups of cases that the fit did not see."""
    table = stack_table()
    for fit in fitted.fits:
        errors = (fit.default_error, fit.error, fit.honest_error)
        add_stack(table, fit.name, fit.stack, fit.numbers, len(fit.cases), len(fit.held_out), errors)
    shares = ", ".join(f"{name} {getattr(DEFAULT, name):.2f}" for name in NUMBERS[:4])
    times = ", ".join(f"{name} {time_text(getattr(DEFAULT, name))}" for name in NUMBERS[4:])
    note = "Errors are mean absolute ones of the step time; honest: each group of cases predicted by a fit without it."
    lines = [f"Empty: as the default, {shares}, {times}.", note]
    if (common := fitted.common) is not None:
        shares = ", ".join(f"{name} {getattr(common.stack, name):.2f}" for name in NUMBERS[:4])
        times = ", ".join(f"{name} {time_text(getattr(common.stack, name))}" for name in NUMBERS[4:])
        lines.append(f"One set for all, sources of equal weight: {shares}, {times}.")
        lines.append(
            f"Mean over sources: default {common.default_error:.1%}, this set {common.error:.1%}, "
            f"each source by a set fitted to the others {common.left_out_error:.1%}."
        )
    return Group(table, Text(), *map(Text, lines))
