"""Limits of cost and days: of effective tokens, where their worth is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.islands.row_limits import fault, refusal, usd_per_token
from planner.islands.sync_rows import SyncRow
from planner.limits import Limits
from planner.training_time import TrainingTime
from sim.errors import TooLate
from sim.islands.token_worth import TokenWorth
from sim.sync import Sync
from tests.sim.islands.builders import islands_plan, machines


def row(tokens_per_s: float, worth: float | None = 1.0, price: float | None = 3600.0) -> SyncRow:
    """A row of DiLoCo on four devices; `price` in USD/h of a device."""
    where = machines()
    per_s = None if price is None else price / 3600
    priced = tuple(replace(one, node=replace(one.node, device=replace(one.node.device, price=per_s))) for one in where.clusters)
    plan = islands_plan(replace(where, clusters=priced), Sync("diloco", 30))
    known = None if worth is None else TokenWorth(worth, worth, worth)
    return SyncRow(plan, (("a",), ("b",)), str(plan.sync), "bounded", tokens_per_s, known)


def days(most: float) -> Limits:
    """At most so many days for 86,400 tokens, without failures: a token per second for each day."""
    return Limits(training=TrainingTime(most, 86400.0, 1.0, "as required"))


def test_cost_is_of_effective_tokens():
    assert usd_per_token(row(100.0)) == pytest.approx(4 / 100)
    assert usd_per_token(row(100.0, 0.5)) == pytest.approx(4 / 50)
    assert usd_per_token(row(100.0, None)) == pytest.approx(4 / 100)
    assert usd_per_token(row(100.0, price=None)) is None
    assert fault(Limits(cost=0.06), row(100.0)) == ""
    assert fault(Limits(cost=0.06), row(100.0, 0.5)) == "a cost of 8e+04 USD/Mtoken, more than 6e+04"


def test_days_are_of_effective_tokens():
    assert fault(days(0.5), row(2.0)) == ""
    assert fault(days(0.5), row(2.0, 0.5)) == "a training of 1 days, more than 0.5"
    assert fault(days(0.5), row(2.0, None)) == ""


def test_the_refusal_has_a_remedy():
    slow = row(2.0, 0.5)
    error = refusal(days(0.5), [slow], slow, 4.0, "any")
    assert isinstance(error, TooLate)
    assert str(error) == (
        "no plan with --sync any that was found trains 0.0864 M tokens in 0.5 days, which takes 2 tokens/s at a goodput of "
        "100.0% (as required): the fastest takes 1 days, with 1 effective tokens/s (diloco 30)\n"
        "no plan of the searched space takes less than 0.25 days, so one in time may exist, which a longer --time-limit may "
        "find; remedy: at least 1 days, or at most 0.0432M tokens"
    )
    dear = refusal(Limits(cost=0.01), [slow, row(1.0)], slow, 4.0, "any")
    assert str(dear) == (
        "no plan with --sync any that was found costs at most 1e+04 USD/Mtoken: the cheapest (diloco 30) costs 4e+06 for a "
        "million effective tokens; remedy: at least 4e+06 USD/Mtoken"
    )
