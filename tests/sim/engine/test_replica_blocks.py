"""Blocks of replicas that are copies of one another are found, and only those."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.engine.carriers import carriers_of
from sim.engine.engine import simulate
from sim.engine.replica_blocks import Copies, copies
from sim.engine.symmetry import fold, unfolded
from sim.hardware.cluster import Device, Fabric, Trunk
from sim.network.rings import Sites
from sim.plan.plan import Plan
from tests import builders
from tests.builders import any_plan, cluster, device, fleet, nic


def blocks(plan: Plan) -> Copies:
    return copies(plan, Sites(plan))


def test_replicas_on_their_own_nodes_are_copies_of_the_first() -> None:
    """Two pipeline ranks of four ranks on eight nodes: replica d is on nodes d and 4 + d."""
    plan = builders.plan(fleet(cluster(nodes=8, devices=4)), tp=4, pp=2, dp=4)
    seen = blocks(plan)
    assert seen.shown == (0, 1, 2, 3, 16, 17, 18, 19)
    assert [int(seen.times[rank]) for rank in seen.shown] == [4] * 8
    assert seen.representative.tolist() == [0, 1, 2, 3] * 4 + [16, 17, 18, 19] * 4


def test_replicas_that_share_a_node_are_one_block() -> None:
    plan = builders.plan(fleet(cluster(nodes=4, devices=4)), tp=2, pp=2, dp=4)
    seen = blocks(plan)
    assert seen.shown == (0, 1, 2, 3, 8, 9, 10, 11)
    assert int(seen.times.sum()) == 2 * 8


def test_replicas_under_one_leaf_are_one_block() -> None:
    plan = builders.plan(fleet(cluster(nodes=8, devices=1, fabric=Fabric(2, 4.0))), dp=8)
    assert blocks(plan).shown == (0, 1)


def test_leaves_and_nodes_that_overlap_in_a_chain_are_one_block() -> None:
    """Replica d is on nodes d and 3 + d, leaves hold nodes 0-1, 2-3 and 4-5: all three are connected."""
    plan = builders.plan(fleet(cluster(nodes=6, devices=1, fabric=Fabric(2, 4.0))), pp=2, dp=3)
    assert blocks(plan).shown == (0, 1, 2, 3, 4, 5)


def test_experts_and_context_join_the_replicas_that_exchange() -> None:
    machines = fleet(cluster(nodes=8, devices=1))
    shape = {"experts": 12, "experts_per_token": 2}
    assert blocks(builders.plan(machines, dp=8, ep=2, shape=shape)).shown == (0, 1)
    assert blocks(builders.plan(machines, dp=4, cp=2)).shown == (0, 1)
    assert blocks(builders.plan(machines, dp=4, cp=2, ep=4, shape=shape)).shown == (0, 1, 2, 3)


@pytest.mark.parametrize("fault", ["device", "link"])
def test_a_straggler_and_a_slow_link_break_the_symmetry_only_as_far_as_they_reach(fault: str) -> None:
    """Replica 5 of eight has its second stage on a slow node. It is shown apart, and so are the two of which one sends its
    gradients over the trunk to the slow node and one receives them; the five others are copies still."""
    facts = {"spec": device("slow", 5e12)} if fault == "device" else {"nics": (nic(bandwidth=1e9),)}
    fast, slow = cluster("fast", 15), cluster("slow", 1, **facts)
    machines = fleet(fast, slow, trunks=(Trunk(("fast", "slow"), "infiniband", 1e11, 0.0),))
    nodes = [Device("fast", node, 0) for node in range(15)]
    placement = (*nodes[:13], Device("slow", 0, 0), *nodes[13:])
    plan = builders.plan(machines, pp=2, dp=8, microbatches=3, placement=placement)
    seen = blocks(plan)
    assert [int(seen.times[rank]) for rank in range(8)] == [5, 0, 0, 0, 1, 1, 1, 0]
    assert seen.shown == (0, 4, 5, 6, 8, 12, 13, 14)
    assert fold(plan).sizes == (5, 2, 1, 5, 2, 1)  # the neighbours do alike, one out and one in
    assert simulate(plan).step_s == pytest.approx(simulate(plan, unfolded(plan)).step_s, rel=1e-9)


def test_a_replica_with_more_microbatches_is_no_copy() -> None:
    plan = builders.plan(fleet(cluster(nodes=4, devices=1)), dp=4, microbatches=(2, 2, 3, 2))
    assert blocks(plan).shown == (0, 2)


def test_a_group_on_another_network_is_no_copy() -> None:
    nics = (nic(), nic("ethernet", 1e9))
    plan = builders.plan(fleet(cluster(nodes=6, devices=1, nics=nics)), pp=2, dp=3)
    slow = tuple(
        replace(group, nic="ethernet", transport="tcp") if group.kind == "pp" and 1 in group.ranks else group
        for group in plan.groups
    )
    assert blocks(replace(plan, groups=slow)).shown == (0, 1, 3, 4)


@pytest.mark.parametrize(("collective", "times"), [("tree", {0: 2, 4: 14}), ("hierarchical", {0: 16}), ("ring", {0: 16})])
def test_nodes_with_equal_traffic_of_a_collective_are_copies(collective: str, times: dict[int, int]) -> None:
    """In a double tree over sixteen nodes the two roots pass half of what all others pass."""
    machines = fleet(cluster(nodes=16, devices=2))
    plan = builders.plan(machines, dp=32, zero_stage=0, collective={"dp": collective})
    seen = blocks(plan)
    assert {rank: int(seen.times[rank]) for rank in seen.shown[::2]} == times
    assert simulate(plan).step_s == pytest.approx(simulate(plan, unfolded(plan)).step_s, rel=1e-9)


@given(data=st.data())
def test_gradient_routes_of_shown_ranks_equal_those_of_all_ranks_on_shown_links(data: st.DataObject) -> None:
    """Routes of every gradient collective, link by link, made for shown ranks and made for all."""
    plan = data.draw(any_plan())
    sites = Sites(plan)
    seen = copies(plan, sites)
    few, many = carriers_of(plan, sites, seen), carriers_of(plan)
    for key, carried in few.items():
        whole = many[key]
        assert [(p.latency, p.per_byte) for p in carried.paces] == [
            (pytest.approx(p.latency, rel=1e-9), pytest.approx(p.per_byte, rel=1e-9)) for p in whole.paces
        ]
        for leg, full in zip(carried.legs, whole.legs, strict=True):
            assert {type(number) for number in (leg.share, leg.latency, *dict(leg.use).values())} <= {float, int}
            assert (leg.share, leg.latency) == (pytest.approx(full.share), pytest.approx(full.latency))
            everywhere = dict(full.use)
            for link, weight in leg.use:
                assert weight == pytest.approx(everywhere[link], rel=1e-9)


def test_the_number_of_shown_ranks_does_not_grow_with_the_replicas() -> None:
    for replicas in (16, 256):
        plan = builders.plan(fleet(cluster(nodes=2 * replicas, devices=4)), tp=4, pp=2, dp=replicas)
        assert len(blocks(plan).shown) == 8
        assert fold(plan).sizes == (4 * replicas, 4 * replicas)
