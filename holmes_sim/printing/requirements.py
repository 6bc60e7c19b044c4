"""Table of what each requirement of a plan costs."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from holmes_sim.conflicts import Price
from holmes_sim.printing.tables import grid
from sim.plan.plan import Plan
from sim.units import Seconds, time_text

SAME = 1e-3
"""Relative difference of two steps below which they are called equal: the gap at which a plan is called optimal."""
CLOSE = 1e-2
"""A step that could be shorter by a smaller share is called the shortest here."""


def required(plan: Plan, prices: Sequence[Price]) -> Table:
    """Table of requirements with the step of the best plan without each of them."""
    assert plan.prediction is not None
    step, table = plan.prediction.step_s, grid("What each requirement costs", "layout", "step without it", "costs")
    table.columns[0].header = "requirement"
    for price in prices:
        if price.step_s is None:
            table.add_row(price.requirement, "-", price.reason)
        else:
            found = min(price.step_s, step)
            table.add_row(price.requirement, _text(found), _cost(step, found, price.bound_s))
    return table


def _cost(step: Seconds, found: Seconds, bound: Seconds | None) -> str:
    """What a requirement costs: the step less the one found without it, which may be longer than the shortest one."""
    known = f"{_text(step - found)}" if found < step * (1 - SAME) else ""
    if bound is not None and bound < found * (1 - CLOSE):
        most = f"at most {_text(step - bound)} of every step"
        return f"at least {known}, {most}" if known else most
    return f"{known} of every step" if known else "nothing"


def _text(seconds: Seconds) -> str:
    return time_text(float(f"{seconds:.4g}"))
