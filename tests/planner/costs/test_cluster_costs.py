"""Costs of the stages of one cluster by their position on its nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.costs.cluster_costs import passing_alike, single_replica
from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes
from planner.request import Request
from planner.space.shape import Shape
from planner.space.shapes import searched
from sim.errors import Infeasible
from sim.formats import topology
from sim.hardware.cluster import Fabric
from tests import builders as make
from tests.more import after
from tests.planner.builders import on_one_cluster, random_request_with_experts_or_long_sequences, shape


def test_a_shape_with_one_replica_has_no_sharding_and_splits_the_backward():
    one = single_replica(Shape(2, 6, 4, "full", "interleaved", 3, 3, zero_shard_size=2))
    assert (one.tp, one.dp, one.microbatch_size, one.recompute) == (2, 1, 4, "full")
    assert (one.vpp, one.zero_stage, one.zero_shard_size) == (1, 1, None)
    assert one.schedule in ("zb-h1", "zb-h2")


@pytest.mark.parametrize(("devices", "dp", "positions"), [(4, 4, 1), (4, 2, 2), (4, 3, 4), (2, 4, 1)])
def test_there_is_one_cost_for_each_position_of_a_stage_on_its_nodes(devices, dp, positions):
    question = on_one_cluster(batch=12, nodes=12, devices=devices)
    costs, (cluster,) = PlanningContext(question).cluster_costs, question.clusters()
    assert len(costs.stages(cluster, shape(dp=dp))) == positions
    assert costs.stages(cluster, shape(dp=dp)) is costs.stages(cluster, shape(dp=dp))


def test_a_ring_inside_a_node_is_faster_than_one_over_two_nodes():
    """Stages of 3 on nodes of 4: stage 0 is inside node 0, stage 1 on nodes 0 and 1."""
    nic, wire = make.nic("ethernet", 1e6), make.wire(bandwidth=1e9)
    question = on_one_cluster(batch=3, nodes=3, devices=4, nics=(nic,), intra_node=wire)
    costs, (cluster,) = PlanningContext(question).cluster_costs, question.clusters()
    reduce = [at.of(2, False, False).reduce for at in costs.stages(cluster, shape(dp=3))]
    assert len(reduce) == 4
    assert reduce[0] < reduce[1] == pytest.approx(reduce[2])
    assert reduce[3] == pytest.approx(reduce[0])


def test_the_seconds_of_a_layer_by_hand():
    """A layer's forward has 24 s h^2 + 4 s^2 h FLOPs for s tokens, the backward twice the products and 2.5 attentions, at
    1e9 FLOP/s; passes over memory take no time. Two layers take twice as long."""
    spec = make.device(speed=1e9, memory_bandwidth=1e30)
    question = on_one_cluster(spec=spec)
    costs, (cluster,) = PlanningContext(question).cluster_costs, question.clusters()
    forward, backward = costs.layer(cluster, shape())
    products, attention = 24 * 64 * 96**2, 4 * 64**2 * 96 / 2
    assert forward == pytest.approx((products + attention) / 1e9, rel=5e-3)
    assert backward == pytest.approx((2 * products + 2.5 * attention) / 1e9, rel=5e-3)
    assert costs.layer(cluster, shape(dp=4)) == (forward, backward)


def test_a_stage_spread_evenly_differs_only_where_nodes_are_not_filled():
    """Six replicas on nodes of four: 4 + 2 filled, 3 + 3 evenly."""
    question = on_one_cluster(batch=12, nodes=2, devices=4)
    costs, (cluster,) = PlanningContext(question).cluster_costs, question.clusters()
    assert costs.spread(cluster, shape(dp=4)) is None
    assert costs.spread(cluster, shape(dp=6)) is not None


@pytest.mark.parametrize("name", ["holmes-hybrid-4", "peers/hexiscale-a-40", "mixed-h100-a100-v100", "peers/dtfm-0-datacenter"])
def test_stages_inside_one_node_cost_what_their_own_devices_do(name):
    """They share the costs of the first of them; those of their own devices are the same to the last bit."""
    where = topology.load(f"topologies/{name}.yaml")
    costs, shared = PlanningContext(Request(where, where.workload)).cluster_costs, 0
    for cluster in where.fleet.clusters:
        for tp, dp in ((1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (4, 1)):
            if tp > cluster.node.count or cluster.devices < 2 * tp * dp:
                continue
            one = shape(tp=tp, dp=dp)
            every = costs.stages(cluster, one)
            shared += len(every) - len(set(map(id, every)))
            for at, own in zip(every, costs.collectives(cluster, one), strict=True):
                for layers, first, last in ((1, True, False), (3, False, False), (2, False, True)):
                    assert replace(at, collectives=own).of(layers, first, last) == at.of(layers, first, last)
    assert shared


@pytest.mark.parametrize("seed", after(4, range(60), last=16))
def test_the_fewest_replicas_that_hold_the_experts_have_the_passes_of_all(seed):
    """Of a stage of each role, with cp and ep on parts of nodes and on whole nodes, under two schedules."""
    question = random_request_with_experts_or_long_sequences(seed)
    context = PlanningContext(question)
    try:
        every = [one for one in searched(question) if max(one.cp, one.ep) > 1]
    except Infeasible:
        every = []
    for one in (replace(base, schedule=name) for base in every for name in ("1f1b", "zb-h1")):
        for option in node_classes(context, one):
            for role, ends in (("first", (True, False)), ("middle", (False, False)), ("last", (False, True))):
                for layers in (1, 2, 5):
                    own = [costs.passes(layers, *ends) for costs in option.costs]
                    cost = option.with_messages(role, layers, 0.0, 0.0)
                    assert cost.forward == pytest.approx(min(forward for forward, _ in own), rel=1e-12)
                    assert cost.backward == pytest.approx(min(backward for _, backward in own), rel=1e-12)


def test_groups_at_unequal_positions_are_looked_at_one_by_one():
    """Experts over two ranks of nodes of three, and over four ranks of nodes of two below leaf switches."""
    for nodes, devices, fabric, ep in ((4, 3, None, 2), (4, 2, Fabric(1, 0.5), 4)):
        cluster = make.cluster(nodes=nodes, devices=devices, fabric=fabric)
        one = shape(dp=4, ep=ep)
        assert passing_alike(cluster, one).dp == 4
        assert passing_alike(make.cluster(nodes=nodes, devices=ep), one).dp == ep
