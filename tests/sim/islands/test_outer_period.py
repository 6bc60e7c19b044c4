"""Timetables of outer periods, with and without overlap, outages, and islands that leave and come back."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.islands import outer_period
from sim.islands.exchange import ExchangeCost
from sim.islands.membership import TIMEOUT
from sim.islands.outer_period import MANY, simulate
from sim.islands.outer_timeline import NETWORK, Absence, Checkpoint, OuterSpan, Timing
from sim.sync import Sync
from tests.sim.islands.builders import islands_plan, machines

TRUNK = ("trunk", "a", "b", "ethernet", "out")
WHERE = machines(bandwidth=1e9)


def cost(transfer: float, latency: float = 0.0, update: float = 0.0, handling: float = 0.0) -> ExchangeCost:
    """An exchange whose bytes take `transfer` seconds on the trunk of 1e9 bytes per second."""
    return ExchangeCost((0, 1), "ethernet", transfer * 1e9, ((TRUNK, 1.0),), latency, handling, update)


class Mesh:
    """Exchanges as long as those of all islands; live checkpoints of 40 s; a second for each other island in the ring."""

    links = (TRUNK,)

    def __init__(self, exchange: ExchangeCost):
        self.usual = exchange

    def exchange(self, present):
        return self.usual if len(present) > 1 else replace(self.usual, payload=0.0, use=())

    def rebuild_s(self, islands):
        return max(islands - 1.0, 0.0)

    def checkpoint(self, joiner, present):
        return Checkpoint(min(present), 40e9, ((TRUNK, 1.0),), 0.0)


def run(sync: Sync, inner, exchange: ExchangeCost, beside=None, **more):
    plan = islands_plan(WHERE if len(inner) == 2 else machines(len(inner), bandwidth=1e9), sync)
    options = {key: more.pop(key) for key in ("absences", "periods", "until") if key in more}
    return simulate(plan, Timing(inner, beside or inner, exchange, Mesh(exchange), **more), **options)


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
    while_computing = run(Sync("diloco", 4), (3.0, 3.0), cost(5.0), absences=(Absence(0, 20.0),), periods=3)
    assert while_computing.ends == ((17.0,), (17.0, 29.0, 41.0))
    in_exchange = run(Sync("diloco", 4), (3.0, 3.0), cost(5.0), absences=(Absence(0, 15.0),), periods=2)
    assert in_exchange.ends == ((), (15.0 + TIMEOUT, 27.0 + TIMEOUT))
    others_wait = run(Sync("diloco", 4), (3.0, 2.0), cost(5.0), absences=(Absence(0, 10.0),), periods=1)
    assert others_wait.ends == ((), (10.0 + TIMEOUT,))


def test_several_others_rebuild_their_ring_before_the_next_exchange():
    found = run(Sync("diloco", 4), (3.0,) * 3, cost(5.0), absences=(Absence(0, 20.0),), periods=3)
    assert found.ends == ((17.0,), (17.0, 35.0, 52.0), (17.0, 35.0, 52.0))


def test_an_island_that_is_back_joins_at_the_next_period_and_the_others_wait_for_its_checkpoint():
    found = run(Sync("diloco", 4), (3.0, 3.0), cost(5.0), absences=(Absence(0, 20.0, 45.0),), periods=5)
    begin = 53.0 + 1.0 + 40.0  # the others' period, the ring of two, the checkpoint
    assert found.ends == ((17.0, begin + 17.0), (17.0, 29.0, 41.0, 53.0, begin + 17.0))
    assert OuterSpan(1, "join", 53.0, begin) in found.spans


def test_the_last_island_that_is_back_begins_from_its_own_checkpoint():
    gone = (Absence(0, 20.0, 100.0), Absence(1, 30.0, 60.0))
    found = run(Sync("diloco", 4), (3.0, 3.0), cost(5.0), absences=gone, periods=8)
    assert found.ends[1] == (17.0, 29.0, 72.0, 84.0, 96.0, 108.0, 108.0 + 41.0 + 17.0)
    assert found.ends[0] == (17.0, 108.0 + 41.0 + 17.0)


def test_an_island_that_leaves_before_it_has_joined_is_not_waited_for():
    twice = (Absence(0, 20.0, 45.0), Absence(0, 60.0))
    found = run(Sync("diloco", 4), (3.0, 3.0), cost(5.0), absences=twice, periods=5)
    assert found.ends == ((17.0,), (17.0, 29.0, 41.0, 53.0, 53.0 + 1.0 + 40.0 + 12.0))


def test_a_checkpoint_is_sent_anew_when_an_island_leaves_meanwhile():
    gone = (Absence(0, 20.0, 30.0), Absence(1, 50.0))
    found = run(Sync("diloco", 4), (3.0,) * 3, cost(5.0), absences=gone, periods=3)
    begin = 50.0 + TIMEOUT + 1.0 + 40.0  # the period ends at 35
    assert found.ends == ((17.0, begin + 17.0), (17.0, 35.0), (17.0, 35.0, begin + 17.0))


def test_an_absence_beside_exchanges_ends_at_a_period_that_nobody_has_begun():
    found = run(Sync("co2", 4), (3.0, 3.0), cost(10.0), absences=(Absence(0, 20.0, 45.0),), periods=6)
    joined = 20.0 + TIMEOUT + 24.0 + 41.0  # the result of the first exchange is due at 24 and comes after the timeout
    assert found.ends[1] == (12.0, 30.0, 42.0, 54.0, joined + 12.0, joined + 24.0)
    assert found.ends[0] == (12.0, joined + 12.0, joined + 24.0)


@pytest.mark.parametrize("seed", range(4))
def test_folded_periods_are_those_that_are_simulated_one_by_one(seed, monkeypatch):
    random = Random(seed)
    times = sorted(random.uniform(0.0, 4000.0) for _ in range(6))
    gone = (Absence(0, *times[:2]), Absence(1, *times[2:4]), Absence(0, *times[4:]))
    options = {"absences": gone, "periods": MANY, "until": 5000.0}
    folded = run(Sync("diloco", 4), (3.0, 2.5), cost(5.0), **options)
    monkeypatch.setattr(outer_period._Simulation, "_alike", lambda self, index, most: 0)
    every = run(Sync("diloco", 4), (3.0, 2.5), cost(5.0), **options)
    assert folded.events < every.events / 2
    assert folded.completed == every.completed == tuple(map(len, every.ends))
    for one, other in zip(folded.ends, every.ends, strict=True):
        assert len(one) < len(other)
        assert one[-3:] == pytest.approx(other[-3:])


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
