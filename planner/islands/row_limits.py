"""Limits of cost and of days for exact plans and plans of islands, which are known when a plan is simulated.

Both count tokens of synchronous training: effective ones, where their worth is known, else tokens."""

from __future__ import annotations

from collections.abc import Sequence

from planner.islands.sync_rows import SyncRow
from planner.limits import Limits
from sim.errors import Infeasible
from sim.results.islands_cost import rent
from sim.units import MEGA, UsdPerToken


def usd_per_token(row: SyncRow) -> UsdPerToken | None:
    """Rent of the occupied nodes for a token of synchronous training; None where a device has no price."""
    paid = rent(row.plan)
    return None if paid is None else paid / row.speed


def fault(limits: Limits, row: SyncRow) -> str:
    """What a row does not keep to of the cost and the days; empty where it keeps to them."""
    cost = usd_per_token(row)
    if limits.cost is not None and cost is not None and cost > limits.cost * (1 + 1e-12):
        return f"a cost of {cost * MEGA:.4g} USD/Mtoken, more than {limits.cost * MEGA:.4g}"
    if limits.training is not None and limits.training.days_of(1.0, row.speed) > limits.training.days * (1 + 1e-12):
        return f"a training of {limits.training.days_of(1.0, row.speed):.4g} days, more than {limits.training.days:.6g}"
    return ""


def refusal(limits: Limits, rows: Sequence[SyncRow], fastest: SyncRow, at_most: float, text: str) -> Infeasible:
    """The error where no row keeps to the cost and the days: what comes nearest, and the remedy.

    `fastest`: the best of the rows; `at_most`: tokens per second that no searched plan exceeds; `text`: that of --sync."""
    who = f"no plan with --sync {text} that was found"
    costs = [(cost, row) for row in rows if (cost := usd_per_token(row)) is not None]
    if limits.cost is not None and costs:
        cost, row = min(costs, key=lambda pair: pair[0])
        if cost > limits.cost * (1 + 1e-12):
            return Infeasible(
                f"{who} costs at most {limits.cost * MEGA:.4g} USD/Mtoken: the cheapest ({row.short}) costs {cost * MEGA:.4g} "
                f"for a million {_tokens(row)}; remedy: at least {cost * MEGA:.4g} USD/Mtoken"
            )
    if limits.training is not None and fault(Limits(training=limits.training), fastest):
        return limits.training.too_slow(who, fastest.speed, at_most, f"{_tokens(fastest)}/s ({fastest.short})")
    return Infeasible(f"{who} has {'; '.join(limits.words())}")


def _tokens(row: SyncRow) -> str:
    """Which tokens are counted."""
    return "tokens" if row.price == "exact" else "effective tokens" if row.worth is not None else "tokens of unknown worth"
