"""Tables of software stacks: which constants were fitted, and the errors of the fit."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group
from rich.table import Table
from rich.text import Text

from holmes_sim.calibration import Calibration, Fit, HeldOut
from holmes_sim.pooled_fit import USUAL
from holmes_sim.printing.tables import grid
from sim.formats.stack_facts import HeldOutFacts
from sim.hardware.stack import DEFAULT, FACTS, NUMBERS, SHARES, TIMES, Stack
from sim.units import time_text

FACTS_A_LINE = 3
"""Facts on one line of a table: more would leave no room for the names of stacks."""


def stack_table() -> Table:
    """An empty table of stacks; `add_stack` adds rows."""
    table = grid("Software stacks", "name", "cases", "groups", "constants", "default", "fitted", "honest")
    table.columns[0].header = "stack"
    return table


def add_stack(
    table: Table,
    name: str,
    stack: Stack,
    fitted: Iterable[str],
    cases: int,
    groups: int,
    errors: tuple[float, float, float] | None,
) -> None:
    """Add a row: fitted constants, facts, and mean absolute errors with the default, with the fit, and on held-out groups.

    `errors` is None for a stack of which only facts are known."""
    passes = (f"passes of {name} x {times:g}" for name, times in stack.passes)
    facts = (*(fact for fact in FACTS if getattr(stack, fact)), *passes)
    lines = (", ".join(facts[at : at + FACTS_A_LINE]) for at in range(0, len(facts), FACTS_A_LINE))
    numbers = _listed(stack, (number for number in NUMBERS if number in fitted))
    known = "\n".join(text for text in (numbers, *lines) if text)
    table.add_row(name, str(cases), str(groups or ""), known, *(f"{error:.1%}" for error in errors or ()))


def families(held_out: Iterable[HeldOut | HeldOutFacts]) -> int:
    """Number of groups of the axis "model", or runs, whose error is the honest one."""
    return sum(one.axis in ("model", "run") for one in held_out)


def _text(number: str, stack: Stack) -> str:
    """A constant of a stack as text."""
    value: float = getattr(stack, number)
    return time_text(value) if number in TIMES else f"{value:.2f}" if number in SHARES else f"{value:.3g}"


def _listed(stack: Stack, numbers: Iterable[str]) -> str:
    return ", ".join(f"{number} {_text(number, stack)}" for number in numbers)


def fitted_constants(fit: Fit) -> str:
    """The fitted constants of a stack as text."""
    return _listed(fit.stack, fit.numbers)


def calibrated(fitted: Calibration) -> Group:
    """Table of all fitted stacks with their errors, and the common set of constants if there is one."""
    table = stack_table()
    for fit in fitted.fits:
        errors = (fit.default_error, fit.error, fit.honest_error)
        add_stack(table, fit.name, fit.stack, fit.numbers, len(fit.cases), families(fit.held_out), errors)
    note = "Errors: mean absolute error of the step time. honest: each group of cases is predicted by a fit without this group."
    lines = [f"All other constants have the default: {_listed(DEFAULT, NUMBERS)}.", note]
    if (common := fitted.common) is not None:
        lines.append(f"One set of constants for all stacks, with equal weight for each source: {_listed(common.stack, USUAL)}.")
        lines.append(
            f"Mean error over sources: default {common.default_error:.1%}, this set {common.error:.1%}, "
            f"each source with a set fitted to the others {common.left_out_error:.1%}."
        )
    return Group(table, Text(), *map(Text, lines))
