"""Where ranks stand and which NIC and collective their groups get."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.placement.ranks import assemble, build, stages_of, virtual, virtual_stages, with_layers
from planner.space.shape import Shape
from planner.space.shapes import slot, spread, uneven
from sim.analytic import plan_costs
from sim.errors import NotDefined
from sim.hardware.cluster import Trunk
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from tests import builders as make
from tests.planner.builders import on_one_cluster, request


@pytest.fixture
def question():
    """InfiniBand, RoCE and Ethernet alone, two nodes of four devices each, joined by Ethernet."""
    ethernet = make.nic("ethernet", 1e9)
    clusters = [
        make.cluster("ib", 2, 4, (make.nic("infiniband"), ethernet)),
        make.cluster("roce", 2, 4, (make.nic("roce"), ethernet)),
        make.cluster("eth", 2, 4, (ethernet,)),
    ]
    trunks = tuple(Trunk(pair, "ethernet", 1e9, 1e-4) for pair in (("ib", "roce"), ("roce", "eth"), ("eth", "ib")))
    return request(make.fleet(*clusters, trunks=trunks), make.model(12), 48)


def stood(plan: Plan, kind: str) -> list[list[str]]:
    """Devices of every group of a kind, in ring order."""
    return [[str(plan.placement[rank]) for rank in group.ranks] for group in plan.groups if group.kind == kind]


def test_tensor_parallel_groups_stand_inside_a_node_and_replicas_side_by_side(question):
    plan = build(question, Shape(2, 2, 1, "none", "1f1b", 1, 1), (("ib", 6), ("ib", 6)), "by hand")
    assert [str(device) for device in plan.placement] == [f"ib/node{n}/dev{d}" for n in range(2) for d in range(4)]
    assert stood(plan, "tp") == [
        ["ib/node0/dev0", "ib/node0/dev1"], ["ib/node0/dev2", "ib/node0/dev3"],
        ["ib/node1/dev0", "ib/node1/dev1"], ["ib/node1/dev2", "ib/node1/dev3"],
    ]  # fmt: skip
    assert stood(plan, "dp")[0] == ["ib/node0/dev0", "ib/node0/dev2"]
    assert {(g.kind, g.nic, g.transport) for g in plan.groups} == {
        ("tp", "intra_node", "intra_node"), ("dp", "intra_node", "intra_node"), ("pp", "infiniband", "rdma"),
    }  # fmt: skip


def test_slots_that_do_not_fill_their_nodes_can_lie_evenly_on_them():
    """Three stages of three on nodes of four: each inside a node, and not one on two of them. Seven stand as four and three."""
    five = on_one_cluster(12, 6, nodes=5, devices=4)
    shape, stages = Shape(1, 3, 1, "none", "1f1b", 1, 1), (("c", 4),) * 3
    filled, even = (build(five, shape, stages, "by hand", evenly) for evenly in (False, True))
    assert [(device.node, device.index) for device in even.placement] == [(n, d) for n in range(3) for d in range(3)]
    assert [device.node for device in filled.placement] == [0, 0, 0, 0, 1, 1, 1, 1, 2]
    assert [(d.node, d.index) for pair in spread(make.cluster("c", 5, 8), 2, 6) for d in pair] == [
        (node, index) for node in range(2) for index in range(6)
    ]  # fmt: skip
    assert Counter(row[0].node for row in spread(make.cluster("c", 5, 4), 1, 14)) == {0: 4, 1: 4, 2: 3, 3: 3}


@given(nodes=st.integers(1, 6), per_node=st.integers(1, 8), data=st.data())
def test_slots_lie_evenly_on_the_fewest_nodes(nodes, per_node, data):
    """In order, each once; nodes differ by one slot at most; where they would differ from filled ones, `uneven` says so."""
    cluster, taken = make.cluster("c", nodes, per_node), data.draw(st.integers(1, nodes * per_node))
    spread_slots = spread(cluster, 1, taken)
    filled = tuple(slot(cluster, 1, index) for index in range(taken))
    counts = Counter(row[0].node for row in spread_slots)
    positions = [(row[0].node, row[0].index) for row in spread_slots]
    assert len(positions) == taken and positions == sorted(set(positions))
    assert max(index for _, index in positions) < per_node
    assert set(counts) == {row[0].node for row in filled}
    assert max(counts.values()) - min(counts.values()) <= 1
    assert uneven(cluster, Shape(1, taken, 1, "none", "1f1b", 1, 1), 1) == (spread_slots != filled)


def test_stages_take_the_next_free_slots_of_their_cluster(question):
    """Back to ib after roce: the third stage stands behind the first one's slots."""
    plan = build(question, Shape(1, 2, 1, "none", "1f1b", 1, 1), (("ib", 4), ("roce", 4), ("ib", 4)), "by hand")
    assert [str(device) for device in plan.placement] == [
        "ib/node0/dev0", "ib/node0/dev1", "roce/node0/dev0", "roce/node0/dev1", "ib/node0/dev2", "ib/node0/dev3",
    ]  # fmt: skip


def test_a_plan_with_other_layers_keeps_its_devices(question):
    """As if it were built with these layers; a stage without a layer for each virtual stage is refused."""
    one = Shape(1, 2, 1, "none", "interleaved", 2, 1)
    plan = build(question, one, (("ib", 4), ("roce", 8)), "by hand")
    moved = with_layers(question, plan, (5, 7))
    assert moved == build(question, one, (("ib", 5), ("roce", 7)), "by hand")
    with pytest.raises(NotDefined):
        with_layers(question, plan, (1, 11))


def test_every_group_gets_the_fastest_nic_that_its_members_share(question):
    """Holmes' automatic NIC selection: RDMA within an environment, TCP over Ethernet between them."""
    plan = build(question, Shape(1, 8, 1, "none", "1f1b", 1, 1), (("ib", 5), ("roce", 4), ("eth", 3)), "by hand")
    found = {}
    for group in plan.groups:
        clusters = "+".join(dict.fromkeys(plan.placement[rank].cluster for rank in group.ranks))
        found.setdefault((group.kind, clusters), set()).add((group.nic, group.transport))
    assert found == {
        ("dp", "ib"): {("infiniband", "rdma")},
        ("dp", "roce"): {("roce", "rdma")},
        ("dp", "eth"): {("ethernet", "tcp")},
        ("pp", "ib+roce+eth"): {("ethernet", "tcp")},
    }
    assert [(stage.first, stage.past_last) for stage in plan.stages] == [(0, 5), (5, 9), (9, 12)]


def test_groups_of_one_rank_are_not_listed(question):
    plan = build(question, Shape(1, 1, 1, "none", "1f1b", 1, 1), (("ib", 6), ("roce", 6)), "by hand")
    assert {group.kind for group in plan.groups} == {"pp"}


@pytest.mark.parametrize(
    ("layers", "chunks"),
    [
        ((6, 6), [3, 3, 3, 3]),
        ((7, 5), [3, 2, 4, 3]),
        ((4, 8), [2, 4, 2, 4]),
    ],
)
def test_virtual_stages_share_the_layers_of_their_pipeline_rank_evenly(question, layers, chunks):
    """Stage v of pipeline rank p is stage v x pp + p; what is left over goes to the later chunks."""
    stages = tuple(("ib", count) for count in layers)
    plan = build(question, Shape(1, 4, 1, "none", "interleaved", 2, 1), stages, "by hand")
    assert [stage.layers for stage in plan.stages] == chunks
    assert plan.layers == tuple(layers)


def test_three_virtual_stages(question):
    plan = build(question, Shape(1, 4, 1, "none", "interleaved", 3, 1), (("ib", 5), ("ib", 7)), "by hand")
    assert [stage.layers for stage in plan.stages] == [1, 2, 2, 2, 2, 3]


def test_a_pipeline_rank_too_small_to_be_cut_is_refused(question):
    with pytest.raises(NotDefined) as caught:
        build(question, Shape(1, 4, 1, "none", "interleaved", 3, 1), (("ib", 10), ("ib", 2)), "by hand")
    assert str(caught.value) == "a pipeline stage of 2 layers cannot be cut into vpp 3 virtual stages"


def test_the_collective_chosen_is_the_soonest(question):
    """Whatever is chosen for the data-parallel groups, no other choice of the library makes the closed form shorter."""
    from dataclasses import replace

    plan = build(question, Shape(1, 8, 1, "none", "1f1b", 1, 1), (("ib", 6), ("eth", 6)), "by hand")
    chosen = plan_costs.step_seconds(plan)
    for name in ("ring", "tree", "hierarchical"):
        groups = tuple(replace(g, collective=name) if g.kind == "dp" else g for g in plan.groups)
        try:
            other = plan_costs.step_seconds(replace(plan, groups=groups))
        except NotDefined:
            continue
        if name != "hierarchical":  # not in the library: only on request
            assert chosen <= other * (1 + 1e-9)


def test_devices_may_be_given_one_by_one(question):
    from sim.hardware.cluster import Device

    devices = tuple(Device("roce", 1, index) for index in (3, 1)) + tuple(Device("eth", 0, index) for index in (2, 0))
    plan = assemble(question, Shape(1, 2, 1, "none", "1f1b", 1, 1), (7, 5), devices, "by hand")
    assert plan.placement == devices
    assert plan.made_by.strategy == "by hand"
    assert {(g.kind, g.nic) for g in plan.groups} == {("dp", "intra_node"), ("pp", "ethernet")}


@given(st.integers(1, 6), st.lists(st.lists(st.integers(6, 30), min_size=3, max_size=3), min_size=1, max_size=4))
def test_virtual_stages_of_many_pipelines_are_those_of_each(vpp, layers):
    assert virtual_stages(np.array(layers), vpp).tolist() == [list(virtual(tuple(row), vpp)) for row in layers]


def test_two_stages_along_a_v_hold_the_layers_of_their_rank():
    """Rank r holds stages r and 2p - 1 - r; odd layers are in the second one."""
    config = ParallelConfig(pp=3, vpp=2, schedule="dualpipev", num_microbatches=(6,))
    stages = stages_of((5, 2, 4), config)
    assert [stage.layers for stage in stages] == [2, 1, 2, 2, 1, 3]
    assert [stage.first for stage in stages] == [0, 2, 3, 5, 7, 8]
    loop = stages_of((5, 2, 4), replace(config, schedule="interleaved"))
    assert [stage.layers for stage in loop] == [2, 1, 2, 3, 1, 2]
