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


def required(plan: Plan, prices: Sequence[Price]) -> Table:
    """Table of requirements with the step of the best plan without each of them."""
    assert plan.prediction is not None
    step, table = plan.prediction.step_s, grid("What each requirement costs", "layout", "step without it", "costs")
    table.columns[0].header = "requirement"
    for price in prices:
        if price.step_s is None:
            table.add_row(price.requirement, "-", price.reason)
        elif price.step_s < step * (1 - SAME):
            table.add_row(price.requirement, _text(price.step_s), f"{_text(step - price.step_s)} of every step")
        else:
            table.add_row(price.requirement, _text(step), "nothing")
    return table


def _text(seconds: Seconds) -> str:
    return time_text(float(f"{seconds:.4g}"))
