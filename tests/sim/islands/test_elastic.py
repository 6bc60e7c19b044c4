"""Expected speed of islands that leave and come back, against the simulation of each leave and return, and of drawn ones."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import pytest

from sim.islands import elastic
from sim.islands.elastic import SteadyPeriods, expected
from sim.islands.leaving import Leaving, drawn
from sim.islands.mesh import ElasticMesh
from sim.islands.outer_period import MANY, simulate
from sim.islands.outer_timeline import Absence
from sim.islands.prediction import timing
from sim.sync import Sync
from tests.sim.islands.builders import islands_plan, machines

PLAN = islands_plan(machines(3, bandwidth=1e6), Sync("diloco", 10))
INNER = (1.0, 0.5, 1.5)
MESH = ElasticMesh(PLAN)
TIMING = replace(timing(PLAN, INNER), mesh=MESH)
EVERYONE = frozenset({0, 1, 2})


def tokens(timeline, plan=PLAN):
    """Tokens of the periods that islands completed."""
    pairs = zip(timeline.completed, plan.islands, strict=True)
    return sum(count * plan.sync.inner_steps * island.workload.tokens for count, island in pairs)


@pytest.mark.parametrize("slowest", [False, True])
def test_a_leave_costs_what_simulated_leaves_cost_on_average(slowest):
    """At 200 moments of a period; island 0 is slower than the others, or not."""
    inner = (2.0, 0.5, 1.5) if slowest else INNER
    usual = replace(TIMING, inner=inner, beside=inner)
    sets = SteadyPeriods(PLAN, usual, MESH)
    before, after = sets.of(EVERYONE), sets.of(EVERYONE - {0})
    found = []
    for index in range(200):
        moment = (2 + (index + 0.5) / 200) * before.period
        timeline = simulate(PLAN, usual, (Absence(0, moment),), 8)
        found.append(before.rate * moment + after.rate * (timeline.ends[1][-1] - moment) - tokens(timeline))
    assert statistics.mean(found) == pytest.approx(elastic._leave(before, after, MESH, 2), rel=0.01)


def test_a_return_costs_what_simulated_returns_cost_on_average():
    sets = SteadyPeriods(PLAN, TIMING, MESH)
    before, after = sets.of(EVERYONE - {0}), sets.of(EVERYONE)
    found = []
    for index in range(100):
        moment = (2 + (index + 0.5) / 100) * before.period
        timeline = simulate(PLAN, TIMING, (Absence(0, 0.0, moment),), 8)
        found.append(before.rate * moment + after.rate * (timeline.ends[1][-1] - moment) - tokens(timeline))
    assert statistics.mean(found) == pytest.approx(elastic._return(after, before, MESH, 0, EVERYONE - {0}), rel=0.01)


@pytest.mark.parametrize(
    ("sync", "periods"), [(Sync("diloco", 10), 4000), (Sync("every-step"), 2000), (Sync("streaming-diloco", 10, 1, 2), 300)]
)
def test_drawn_leaves_and_returns_agree_with_the_closed_form(sync, periods):
    plan = islands_plan(machines(3, bandwidth=1e6), sync)
    mesh, usual = ElasticMesh(plan), timing(plan, INNER)
    period = SteadyPeriods(plan, usual, mesh).of(EVERYONE).period
    leaving = (Leaving(300 * period, 30 * period), Leaving(500 * period, 20 * period), Leaving(math.inf, 0.0))
    rate, whole = expected(plan, usual, mesh, leaving), periods * period
    rates = []
    for seed in range(8):
        timeline = simulate(plan, replace(usual, mesh=mesh), drawn(leaving, whole, seed), MANY, whole)
        rates.append(tokens(timeline, plan) / whole)
    assert statistics.mean(rates) == pytest.approx(rate.useful, abs=4 * statistics.stdev(rates) / math.sqrt(8))
    assert statistics.stdev(rates) < 0.05 * rate.full


def test_what_is_lost_adds_up():
    leaving = (Leaving(1e5, 1e4),) * 3
    rate = expected(PLAN, TIMING, MESH, leaving)
    assert rate.full == pytest.approx(SteadyPeriods(PLAN, TIMING, MESH).of(EVERYONE).rate)
    assert rate.useful == pytest.approx(rate.full - rate.away - rate.leaves - rate.returns)
    assert min(rate.away, rate.leaves, rate.returns) > 0
    never = expected(PLAN, TIMING, MESH, (Leaving(math.inf, 0.0),) * 3)
    assert (never.useful, never.goodput) == (rate.full, 1.0)


def test_islands_that_are_hardly_ever_present_give_nothing():
    assert expected(PLAN, TIMING, MESH, (Leaving(1.0, 1e9),) * 3).useful == pytest.approx(0.0, abs=1e-3)
