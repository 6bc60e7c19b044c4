"""Exchanges between islands: bytes on trunks, latencies, the order of the ring, compression and outer updates."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.errors import NoRoute, NotModelled
from sim.hardware.cluster import Trunk
from sim.islands.exchange import HOST_RATE, NOTHING, exchange_cost
from sim.islands.prediction import outer_state_bytes
from sim.islands.token_worth import EXACT, token_worth
from sim.kernels import memory
from sim.network.paths import Capacities
from sim.plan.parallel_config import ParallelConfig
from sim.sync import Sync
from sim.workload.adapter import Adapter
from tests.builders import fleet
from tests.sim.islands.builders import LAYERS, islands_plan, machines


def trunk_bytes(cost) -> set[float]:
    return {round(weight, 12) for link, weight in cost.use if link[0] == "trunk"}


def test_two_islands_send_each_parameter_once_each_way():
    plan = islands_plan(machines(bandwidth=1e6, latency=0.5), Sync("every-step"))
    cost, parameters = exchange_cost(plan), plan.workload.model.parameters
    assert cost.payload == 4 * parameters
    assert trunk_bytes(cost) == {1.0}
    assert cost.latency == (LAYERS + 2) * 2 * 0.5
    assert cost.seconds(Capacities(plan.fleet)) == pytest.approx(4 * parameters / 1e6 + (LAYERS + 2) * 1.0)
    assert cost.update == 0.0


@pytest.mark.parametrize("compression", ["none", "int8"])
def test_adapters_are_all_that_is_exchanged(compression):
    """Islands of 1 and 2 stages that train adapters of rank 4: 8 bytes a layer for each value of a side of a linear layer."""
    where, sync = machines(bandwidth=1e6), Sync("diloco", 2, compression=compression)
    whole = islands_plan(where, sync, ({"pp": 1, "dp": 2}, {"pp": 2}))
    workload = replace(whole.workload, adapter=Adapter(4))
    own = [replace(one, workload=replace(workload, global_batch_size=one.workload.global_batch_size)) for one in whole.islands]
    plan = replace(whole, islands=tuple(own))
    trained = LAYERS * Adapter(4).layer_parameters(workload.model)
    assert plan.workload.trained_parameters == trained < 0.2 * workload.model.parameters
    stages = [(2, True, False), (2, False, True)]
    assert trained == sum(memory.stage_parameters(workload, ParallelConfig(), *stage) for stage in stages)
    cost, full = exchange_cost(plan), exchange_cost(whole)
    assert cost.payload / full.payload == pytest.approx(trained / workload.model.parameters)
    assert cost.update / full.update == pytest.approx(cost.payload / full.payload, rel=0.5), "by the largest share of a rank"
    assert outer_state_bytes(plan)[0] == plan.sync.state_bytes * trained / 2
    assert token_worth(plan) is None and token_worth(replace(plan, sync=Sync("every-step"))) == EXACT
    with pytest.raises(NotModelled, match="adapter with powersgd"):
        replace(plan, sync=Sync("diloco", 2, compression="powersgd=2"))


def test_compression_makes_the_payload_smaller():
    plan = islands_plan(machines(bandwidth=1e6), Sync("diloco", 2, compression="bf16"))
    assert exchange_cost(plan).payload == 2 * plan.workload.model.parameters


def test_a_ring_of_n_islands_sends_2_n_minus_1_over_n():
    plan = islands_plan(machines(4), Sync("every-step"))
    cost = exchange_cost(plan)
    assert trunk_bytes(cost) == {1.5}
    assert cost.order == (0, 1, 2, 3)


def test_values_that_cannot_be_added_up_are_sent_to_all_others():
    plan = islands_plan(machines(4), Sync("every-step", compression="top-k=1%"))
    cost = exchange_cost(plan)
    assert trunk_bytes(cost) == {3.0}
    assert cost.payload == pytest.approx(0.08 * plan.workload.model.parameters)


def test_the_ring_follows_the_trunks():
    where = machines(4)
    crossed = tuple(Trunk(pair, "ethernet", 1e9, 0.0) for pair in (("a", "c"), ("c", "b"), ("b", "d"), ("d", "a")))
    plan = islands_plan(replace(where, trunks=crossed), Sync("every-step"))
    cost = exchange_cost(plan)
    assert cost.order == (0, 2, 1, 3)
    assert trunk_bytes(cost) == {1.5}


def test_nothing_is_exchanged_by_independent_islands():
    assert exchange_cost(islands_plan(machines(), Sync("independent"))) == NOTHING


def test_the_outer_update_is_on_the_host():
    plan = islands_plan(machines(), Sync("diloco", 2))
    values = 4 * plan.workload.model.parameters / 2  # of one of two ranks
    assert exchange_cost(plan).update == pytest.approx(7 * values / HOST_RATE + 2 * values / 1e11)


def test_replicas_without_zero_gather_the_result():
    sharded, whole = (exchange_cost(islands_plan(machines(), Sync("every-step"), zero_stage=zero)) for zero in (1, 0))
    assert (sharded.update, whole.payload) == (0.0, sharded.payload)
    assert whole.update > 0.0


def test_compression_is_pipelined_with_the_transfer():
    fast = exchange_cost(islands_plan(machines(bandwidth=1e15), Sync("diloco", 2, compression="int8")))
    capacities = Capacities(machines(bandwidth=1e15))
    assert fast.seconds(capacities) == fast.handling > 0.0


def test_islands_that_nothing_joins():
    where = machines()
    with pytest.raises(NoRoute, match="nothing joins clusters a and b"):
        exchange_cost(islands_plan(fleet(*where.clusters), Sync("every-step")))


DEGREES = [{"dp": 4}, {"tp": 4}, {"pp": 4}, {"tp": 2, "dp": 2}, {"pp": 2, "dp": 2}, {"pp": 2, "tp": 2}, {"dp": 1}]


@settings(max_examples=15)
@given(st.sampled_from(DEGREES), st.sampled_from(DEGREES), st.sampled_from(["every-step", "diloco", "co2"]))
def test_bytes_on_a_trunk_do_not_depend_on_the_layouts(one, two, name):
    cost = exchange_cost(islands_plan(machines(devices=4), Sync(name), (one, two)))
    assert trunk_bytes(cost) == {1.0}
