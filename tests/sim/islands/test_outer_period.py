"""Timetables of outer periods, with and without overlap, outages, and islands that leave."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.islands.exchange import ExchangeCost
from sim.islands.outer_period import NETWORK, TIMEOUT, OuterSpan, Timing, simulate
from sim.sync import Sync
from tests.sim.islands.builders import islands_plan, machines

TRUNK = ("trunk", "a", "b", "ethernet", "out")
WHERE = machines(bandwidth=1e9)


def cost(transfer: float, latency: float = 0.0, update: float = 0.0, handling: float = 0.0) -> ExchangeCost:
    """An exchange whose bytes take `transfer` seconds on the trunk of 1e9 bytes per second."""
    return ExchangeCost((0, 1), "ethernet", transfer * 1e9, ((TRUNK, 1.0),), latency, handling, update)


def run(sync: Sync, inner, exchange: ExchangeCost, beside=None, **more):
    plan = islands_plan(WHERE, sync)
    options = {key: more.pop(key) for key in ("leaves", "periods") if key in more}
    return simulate(plan, Timing(inner, beside or inner, exchange, **more), **options)


def test_islands_wait_for_a_blocking_exchange():
    found = run(Sync("diloco", 4), (2.0, 3.0), cost(5.0, latency=1.0, update=0.5))
    assert found.ends[0] == found.ends[1] == (18.5, 37.0, 55.5)
    assert [span for span in found.spans if span.end <= 18.5] == [
        OuterSpan(0, "inner steps", 0.0, 8.0, 4),
        OuterSpan(1, "inner steps", 0.0, 12.0, 4),
        OuterSpan(0, "wait", 8.0, 12.0),
        OuterSpan(NETWORK, "exchange", 12.0, 18.0),
        OuterSpan(0, "exchange", 12.0, 18.5),
        OuterSpan(1, "exchange", 12.0, 18.5),
    ]


def test_an_exchange_beside_the_next_period_is_hidden():
    found = run(Sync("co2", 4), (3.0, 3.0), cost(10.0))
    assert found.period_s(0) == 12.0


def test_an_exchange_longer_than_a_period_is_not():
    found = run(Sync("co2", 4), (3.0, 3.0), cost(30.0, update=2.0))
    assert found.period_s(0) == found.period_s(1) == 32.0


def test_fragments_go_one_after_the_other():
    sync = Sync("streaming-diloco", 4, 1, 4)
    assert run(sync, (3.0, 3.0), cost(8.0)).period_s(0) == 12.0  # 2 s each, beside 3 s
    assert run(sync, (3.0, 3.0), cost(20.0)).period_s(0) == 20.0  # 5 s each


def test_inner_steps_are_slower_beside_an_exchange():
    found = run(Sync("co2", 4), (3.0, 3.0), cost(6.0), beside=(6.0, 3.0))
    assert found.period_s(0) == 15.0  # 6 s at half the speed do 1 of 4 steps


def test_independent_islands_go_at_their_own_speed():
    found = run(Sync("independent"), (2.0, 3.0), replace(cost(1.0), payload=0.0, use=()))
    assert (found.period_s(0), found.period_s(1)) == (2.0, 3.0)


def test_handling_may_take_longer_than_the_bytes():
    assert run(Sync("diloco", 1), (1.0, 1.0), cost(2.0, handling=5.0)).period_s(0) == 6.0


def test_an_outage_delays_the_exchange():
    found = run(Sync("diloco", 4), (3.0, 3.0), cost(5.0), outages={TRUNK: ((13.0, 20.0),)}, periods=2)
    assert found.ends[0] == (24.0, 41.0)


def test_a_weak_link_is_slow():
    assert run(Sync("diloco", 4), (3.0, 3.0), cost(5.0), weak={TRUNK: 0.5}).period_s(0) == 22.0


def test_the_others_go_on_after_an_island_has_left():
    alone = replace(cost(0.0), payload=0.0, use=())
    while_computing = run(Sync("diloco", 4), (3.0, 3.0), cost(5.0), without={0: alone}, leaves=(0, 20.0), periods=3)
    assert while_computing.ends == ((17.0,), (17.0, 29.0, 41.0))
    in_exchange = run(Sync("diloco", 4), (3.0, 3.0), cost(5.0), without={0: alone}, leaves=(0, 15.0), periods=2)
    assert in_exchange.ends == ((), (15.0 + TIMEOUT, 27.0 + TIMEOUT))
    others_wait = run(Sync("diloco", 4), (3.0, 2.0), cost(5.0), without={0: alone}, leaves=(0, 10.0), periods=1)
    assert others_wait.ends == ((), (10.0 + TIMEOUT,))


seconds = st.floats(0.01, 10.0)


@given(st.integers(1, 12), seconds, seconds, seconds, seconds, seconds)
def test_a_blocking_period_is_the_sum_of_its_parts(steps, one, two, transfer, latency, update):
    found = run(Sync("diloco", steps), (one, two), cost(transfer, latency, update))
    assert found.period_s(0) == pytest.approx(steps * max(one, two) + transfer + latency + update)


@given(st.integers(1, 12), st.integers(0, 3), st.integers(1, 4), seconds, seconds, seconds)
def test_overlap_never_makes_a_period_longer_than_waiting(steps, overlap, fragments, one, two, transfer):
    sync = Sync("streaming-diloco", steps, min(overlap, steps), min(fragments, steps))
    found = run(sync, (one, two), cost(transfer))
    least = max(steps * max(one, two), transfer)
    assert least * (1 - 1e-9) <= found.period_s(0) <= (steps * max(one, two) + transfer) * (1 + 1e-9)
