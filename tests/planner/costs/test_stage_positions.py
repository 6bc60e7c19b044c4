"""Positions of stages on the nodes of a cluster, and the messages between two stages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.stage_positions import alike_replicas, first_apart, hops, nic_kinds, period, same_position
from planner.space.device_slots import Run
from planner.space.shapes import slot
from sim.hardware.cluster import Trunk
from tests import builders as make
from tests.planner.builders import shape


@pytest.mark.parametrize(
    ("devices", "tp", "dp", "repeats", "apart"),
    [
        (4, 1, 4, 1, 1),  # a stage is a node
        (4, 1, 2, 2, 2),  # two stages a node
        (4, 1, 3, 4, 2),  # stages of 3 on nodes of 4: three nodes hold four stages; stage 1 begins on node 0
        (4, 2, 1, 2, 2),
        (4, 1, 8, 1, 1),  # two nodes a stage
        (6, 1, 4, 3, 2),
    ],
)
def test_period_and_first_stage_apart(devices, tp, dp, repeats, apart):
    cluster = make.cluster(nodes=12, devices=devices)
    assert period(cluster, shape(tp, dp)) == repeats
    assert first_apart(cluster, shape(tp, dp)) == apart


@given(devices=st.integers(1, 8), dp=st.integers(1, 9))
def test_positions_repeat_after_the_period_and_no_sooner(devices, dp):
    cluster, one = make.cluster(nodes=80, devices=devices), shape(dp=dp)

    def location(stage: int) -> list[tuple[int, int]]:
        taken = [slot(cluster, 1, stage * dp + i)[0] for i in range(dp)]
        return [(device.node - taken[0].node, device.index) for device in taken]

    repeats, apart = period(cluster, one), first_apart(cluster, one)
    assert location(repeats) == location(0)
    assert all(location(stage) != location(0) for stage in range(1, repeats))
    nodes = [{slot(cluster, 1, stage * dp + i)[0].node for i in range(dp)} for stage in range(apart + 1)]
    assert not nodes[0] & nodes[apart]
    assert all(nodes[0] & nodes[stage] for stage in range(1, apart))
    for stage in range(3 * repeats):
        assert location(same_position(stage, cluster, one, 0)) == location(stage)


def test_stages_before_the_first_keep_their_index():
    cluster, one = make.cluster(nodes=9, devices=4), shape(dp=2)
    assert [same_position(index, cluster, one, 3) for index in range(7)] == [0, 1, 2, 3, 4, 3, 4]


def test_nic_types_join_two_clusters_or_a_cluster_with_itself():
    both, ethernet = (make.nic("infiniband"), make.nic("ethernet")), (make.nic("ethernet"),)
    a, b, alone = make.cluster("a", 2, nics=both), make.cluster("b", nics=ethernet), make.cluster("c", nics=())
    fleet = make.fleet(a, b, alone, trunks=(Trunk(("a", "b"), "ethernet", 1e9, 0.0),))
    assert nic_kinds(fleet, a, b) == ["ethernet"]
    assert sorted(nic_kinds(fleet, a, a)) == ["ethernet", "infiniband"]
    assert nic_kinds(fleet, alone, alone) == ["intra_node"]


def test_each_device_sends_to_its_peer():
    """Two replicas of tp 2 on nodes of four: node 0 sends to node 1."""
    cluster = make.cluster("c", 2, 4)
    found = hops(cluster, 0, cluster, 1, shape(2, 2), "ethernet")
    assert [(str(a), str(b), nic, times) for a, b, nic, times in found] == [
        (f"c/node0/dev{i}", f"c/node1/dev{i}", "ethernet", 1) for i in range(4)
    ]


def test_one_node_represents_the_others_and_trunks_carry_all():
    """Eight replicas on four nodes of two each: two pairs stand for four each."""
    a, b = make.cluster("a", 4, 2), make.cluster("b", 4, 2)
    found = hops(a, 0, b, 0, shape(dp=8), "ethernet")
    assert [(str(x), str(y), times) for x, y, _, times in found] == [
        ("a/node0/dev0", "b/node0/dev0", 4), ("a/node0/dev1", "b/node0/dev1", 4),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("tp", "runs", "alike"),
    [
        (1, [("one", 0, 8), ("one", 8, 8)], 8),  # a node at each stage
        (1, [("one", 0, 8), ("one", 13, 8)], 3),  # of the second stage, the first three are on node 1
        (1, [("one", 0, 2), ("four", 8, 2)], 2),
        (1, [("one", 0, 8), ("four", 8, 8)], 8),  # all share a NIC, then four pairs do
        (1, [("one", 0, 3), ("four", 0, 3)], 2),  # the third has a NIC of its own at the second stage
        (1, [("four", 1, 8)], 1),  # the first shares its NIC with a slot of another group
        (1, [("four", 2, 8)], 2),  # the next ones have the other CPU
        (2, [("one", 3, 9), ("four", 0, 9)], 1),
        (2, [("one", 0, 9), ("four", 0, 9)], 4),
        (1, [("three", 0, 6), ("two", 0, 6)], 2),  # pairs, then threes: nothing maps a slot of one pair onto another's
    ],
)
def test_replicas_that_one_node_holds_at_every_stage_and_whose_nics_are_shared_alike(tp, runs, alike):
    clusters = {name: make.cluster(name, 4, 8, (make.nic(count=count),)) for name, count in (("one", 1), ("four", 4))}
    clusters |= {name: make.cluster(name, 4, 6, (make.nic(count=count),)) for name, count in (("three", 3), ("two", 2))}
    assert alike_replicas([Run(clusters[name], *slots) for name, *slots in runs], tp) == alike
