"""Predictions of plans of islands: the simulated inner steps, the exchange, tokens per second and MFU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.engine.engine import simulate
from sim.islands.exchange import exchange_cost
from sim.islands.prediction import inner_steps, is_on_host, outer_state_bytes, predict, steps_beside
from sim.network.paths import Capacities
from sim.plan.plan import Plan
from sim.sync import Sync
from tests.builders import cluster, fleet, nic
from tests.sim.islands.builders import islands_plan, machines

WHERE = machines(bandwidth=1e6)


def test_inner_steps_are_those_of_the_plans():
    plan = islands_plan(WHERE, Sync("diloco", 10))
    assert inner_steps(plan) == tuple(simulate(island).step_s for island in plan.islands)


def test_a_prediction_adds_up():
    plan = islands_plan(WHERE, Sync("diloco", 10))
    timeline, found = predict(plan)
    cost, inner = exchange_cost(plan), max(found.inner_step_s)
    exchange = cost.seconds(Capacities(WHERE))
    assert found.exchange_s == pytest.approx(exchange)
    assert found.period_s == pytest.approx(10 * inner + exchange + cost.update) == timeline.period_s(0)
    assert found.exposed_s == pytest.approx(exchange + cost.update)
    assert found.tokens_per_s == pytest.approx(10 * plan.workload.tokens / found.period_s)
    assert found.mfu == pytest.approx(10 * plan.workload.flops / found.period_s / 4e14)


def test_a_slower_island_is_waited_for():
    plan = islands_plan(WHERE, Sync("diloco", 10), ({"dp": 2, "microbatches": 3}, {"dp": 2}))
    found = predict(plan)[1]
    assert plan.batches == (6, 2)
    assert plan.weights == (0.75, 0.25)
    assert found.waiting_s[0] == 0.0
    assert found.inner_step_s[0] > found.inner_step_s[1]
    assert found.waiting_s[1] == pytest.approx(10 * (found.inner_step_s[0] - found.inner_step_s[1]))


def test_independent_islands_add_their_speeds():
    plan = islands_plan(WHERE, Sync("independent"), ({"dp": 2, "microbatches": 3}, {"dp": 2}))
    found = predict(plan)[1]
    one, two = (island.workload.tokens / seconds for island, seconds in zip(plan.islands, found.inner_step_s, strict=True))
    assert found.tokens_per_s == pytest.approx(one + two)
    assert found.waiting_s == (0.0, 0.0)


def test_state_is_on_the_host_for_outer_steps():
    outer = islands_plan(WHERE, Sync("diloco", 10))
    assert is_on_host(outer)
    assert outer_state_bytes(outer) == (4.0 * outer.workload.model.parameters,) * 2  # 8 bytes, over 2 ranks
    step = islands_plan(WHERE, Sync("every-step", compression="top-k=1%"))
    assert not is_on_host(step)
    assert outer_state_bytes(step) == (2.0 * step.workload.model.parameters,) * 2


def test_an_exchange_slows_inner_steps_that_use_the_same_nics():
    """Two nodes an island, joined by the Ethernet NICs that the exchange fills half."""
    shared = machines(bandwidth=1e9)
    nodes = tuple(cluster(name, 2, 1, (nic("ethernet", 1e9),)) for name in "ab")
    where = fleet(*nodes, trunks=tuple(replace(trunk, bandwidth=1e9) for trunk in shared.trunks))
    plan = islands_plan(where, Sync("co2", 2), ({"dp": 2}, {"dp": 2}), overlap_grad_reduce=False)
    inner = inner_steps(plan)
    beside = steps_beside(plan, exchange_cost(plan), inner)
    assert inner[0] * 1.2 < beside[0] < inner[0] * 2


def test_a_plan_of_islands_is_a_plan_of_one_model():
    plan = islands_plan(WHERE, Sync("diloco", 10))
    assert isinstance(plan.islands[0], Plan)
    assert plan.workload.global_batch_size == 4
    assert plan.topology.workload == plan.workload
    assert plan.first_ranks == (0, 2)
