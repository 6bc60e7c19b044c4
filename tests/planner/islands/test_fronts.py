"""The front of speed, money and the statistical price."""

from __future__ import annotations

from dataclasses import replace

from planner.islands.fronts import comparable, front
from planner.islands.sync_rows import SyncRow
from sim.islands.token_worth import TokenWorth
from sim.plan.islands import IslandsPlan
from sim.sync import Sync
from tests.planner.islands.test_row_limits import row as priced


def row(speed: float, sync: Sync | None, devices_price: float | None = 3600.0, worth: float | None = 1.0) -> SyncRow:
    """A row of a strategy; of an exact plan of one of two equal islands if None, which costs half as much an hour."""
    found = priced(speed, worth, devices_price)
    assert isinstance(found.plan, IslandsPlan)
    known = None if worth is None else TokenWorth(worth, worth, worth)
    if sync is None:
        return SyncRow(found.plan.islands[0], (("a",),), "exact", "exact", speed, known)
    plan = replace(found.plan, sync=sync)
    return SyncRow(plan, found.islands, str(sync), sync.price, speed, known)


def diloco(steps: int, compression: str = "none") -> Sync:
    return Sync("diloco", steps, compression=compression)


def test_faster_for_more_inner_steps_is_a_choice():
    exact, few, many, slow = row(50.0, None), row(80.0, diloco(4)), row(90.0, diloco(30)), row(70.0, diloco(64))
    assert front([slow, exact, many, few]) == (many, few, exact)


def test_about_as_fast_is_no_reason_to_give_up_more():
    few, many = row(80.0, diloco(4)), row(80.3, diloco(30))
    packed = row(80.2, diloco(4, "int8"))
    assert front([many, packed, few]) == (few,)


def test_a_cheaper_plan_is_a_choice():
    """Four devices cost twice as much as two: 4 / 80 against 2 / 50 USD a token."""
    exact, sums = row(50.0, None), row(60.0, Sync("every-step"))
    assert front([exact, sums]) == (sums, exact)
    assert front([row(50.0, None, None), row(60.0, Sync("every-step"), None)])[0].price == "exact"
    assert len(front([row(50.0, None, None), row(60.0, Sync("every-step"), None)])) == 1


def test_plans_of_unknown_worth_are_not_compared_with_others():
    known, unknown = row(50.0, diloco(30)), row(90.0, Sync("co2", 8), worth=None)
    assert comparable([known, unknown]) == [known]
    assert front([known, unknown]) == (known,)
    assert front([unknown]) == (unknown,)
