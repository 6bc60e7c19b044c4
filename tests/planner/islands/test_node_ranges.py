"""Islands inside a cluster: ranges of its nodes, where the network between them is thin."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from planner.islands.allowed_sync import parse
from planner.islands.batches import divided
from planner.islands.island_plans import IslandPlans
from planner.islands.node_ranges import (
    NodeRange,
    Partition,
    _held,
    cluster_and_first,
    clusters_of,
    cuts,
    is_thin,
    island_text,
    partition_text,
    with_cut_clusters,
)
from planner.islands.partitions import peak
from planner.islands.search import best, plan_with_sync, priced
from planner.request import Request, Wishes
from planner.time_limit import TimeLimit
from sim.errors import Infeasible
from sim.formats import documents, topology
from sim.hardware.cluster import Fabric
from sim.kernels import memory
from sim.plan.islands import IslandsPlan
from sim.plan.parallel_config import ParallelConfig
from sim.workload.adapter import Adapter
from tests.more import after
from tests.planner.islands.fleets import PINS, request

LAB = """\
format: holmes-sim/topology/1
name: lab
source: written for tests
clusters:
  lab:
    nodes: {nodes}
    hosts: [{hosts}]
    node:
      devices: {{type: a100-sxm4-80gb, count: 1}}
      intra_node: nvlink3
      nics: [{{type: ethernet, bandwidth: {rate}}}]
workload:
  model: {{name: small, layers: 4, hidden: 256, heads: 4, ffn_hidden: 1024, vocab: 4096, learned_positions: 1024}}
  global_batch_size: 48
  seq_len: 1024
  precision: fp16
"""


def lab(nodes: int = 4, rate: str = "100 Mbit/s", wishes: Wishes = PINS) -> Request:
    """Nodes of one A100 on Ethernet."""
    text = LAB.format(nodes=nodes, rate=rate, hosts=", ".join(f"h{index}" for index in range(nodes)))
    return request(topology.from_document(documents.parse("lab.yaml", text)), wishes)


def test_a_range_is_a_cluster_of_its_nodes():
    here = lab()
    (whole,) = here.clusters()
    middle = NodeRange("lab", 1, 2)
    assert (str(NodeRange("lab", 3, 1)), str(middle)) == ("lab node 3", "lab nodes 1-2")
    (one,) = clusters_of(here, (middle,))
    assert (one.name, one.nodes, one.hosts) == ("lab nodes 1-2", 2, ("h1", "h2"))
    assert clusters_of(here, ("lab",)) == [whole]
    assert cluster_and_first(middle) == ("lab", 1)
    assert cluster_and_first("lab") == ("lab", 0)
    assert peak(here, (middle,)) == peak(here, ("lab",)) / 2


def test_a_cluster_that_is_called_like_a_range_is_itself():
    here = lab()
    (whole,) = here.clusters()
    called = replace(whole, name="lab node 1")
    other = replace(here, topology=replace(here.topology, fleet=replace(here.topology.fleet, clusters=(whole, called))))
    assert clusters_of(other, ("lab node 1",)) == [called]
    assert [one.nodes for one in clusters_of(other, (NodeRange("lab", 1, 1),))] == [1]
    assert cluster_and_first("lab node 1") == ("lab node 1", 0)


def test_the_network_is_thin_where_gradients_take_a_tenth_of_the_computation():
    """2 x parameters x 2 bytes over the NIC, against the FLOPs at the peak of all devices."""
    here = lab()
    (cluster,) = here.clusters()
    model, workload = here.workload.model, here.workload
    rate = 4 * model.parameters / (0.1 * workload.flops / (4 * cluster.node.device.peak_of("fp16"))) * 8 / 1e9
    for factor, thin in ((0.99, True), (1.01, False)):
        other = lab(rate=f"{rate * factor:.6f} Gbit/s")
        assert is_thin(other, next(other.clusters())) == thin
    assert not is_thin(here, replace(cluster, nodes=1))
    assert is_thin(other, replace(next(other.clusters()), fabric=Fabric(2, 1.1)))


def test_clusters_are_cut_into_equal_ranges_or_two():
    (cluster,) = lab(6).clusters()
    assert [len(cut) for cut in cuts(cluster)] == [2, 3, 6]
    assert cuts(cluster)[1] == tuple(NodeRange("lab", first, 2) for first in (0, 2, 4))
    assert cuts(replace(cluster, nodes=5, hosts=()))[0] == (NodeRange("lab", 0, 3), NodeRange("lab", 3, 2))
    assert [len(cut) for cut in cuts(replace(cluster, nodes=64, hosts=()))] == [2, 4, 8, 16]
    leaves = replace(cluster, fabric=Fabric(2, 4.0))
    assert [len(cut) for cut in cuts(leaves)] == [3, 6]  # halves of three nodes would lie on the leaves in two ways
    assert cuts(replace(cluster, nodes=1, hosts=())) == []


def test_partitions_are_cut_from_the_coarsest():
    here = lab()
    assert with_cut_clusters(here, (("lab",),)) == [
        ((NodeRange("lab", 0, 2),), (NodeRange("lab", 2, 2),)),
        tuple((NodeRange("lab", node, 1),) for node in range(4)),
    ]
    assert with_cut_clusters(lab(rate="4000 Gbit/s"), (("lab",),)) == []
    assert with_cut_clusters(here, (("lab", "other"),)) == []


def two_labs() -> Request:
    """Laptops and PCs on thin Ethernet, whose device memory is set by tests."""
    here = lab(2)
    (cluster,) = here.clusters()
    pcs = replace(cluster, name="pcs", nodes=3, hosts=())
    fleet = replace(here.topology.fleet, clusters=(cluster, pcs))
    return replace(here, topology=replace(here.topology, fleet=fleet))


def test_clusters_are_cut_each_by_itself():
    """Of two and of three nodes; each cluster alone is tried, too."""
    found = with_cut_clusters(two_labs(), (("lab",), ("pcs",)))
    assert [partition_text(one) for one in found] == [
        "lab: 2 x 1 node",
        "pcs nodes 0-1 | pcs node 2",
        "lab | pcs nodes 0-1 | pcs node 2",
        "lab: 2 x 1 node | pcs",
        "pcs: 3 x 1 node",
        "lab | pcs: 3 x 1 node",
        "lab: 2 x 1 node | pcs nodes 0-1 | pcs node 2",
        "lab: 2 x 1 node | pcs: 3 x 1 node",
    ]


def test_many_clusters_are_cut_at_once():
    """Four clusters of six nodes: 256 combinations; each in 2, then 3 parts, and each alone; 12 of these 14."""
    here = lab(6)
    (cluster,) = here.clusters()
    fleet = replace(here.topology.fleet, clusters=tuple(replace(cluster, name=name, hosts=()) for name in "abcd"))
    found = with_cut_clusters(replace(here, topology=replace(here.topology, fleet=fleet)), tuple((name,) for name in "abcd"))
    assert [len(one) for one in found] == [2] * 2 + [3] * 4 + [6] * 4 + [8, 12]
    five = replace(fleet, clusters=tuple(replace(cluster, name=name, nodes=2, hosts=()) for name in "abcdefg"))
    found = with_cut_clusters(replace(here, topology=replace(here.topology, fleet=five)), tuple((name,) for name in "abcdefg"))
    assert [len(one) for one in found] == [2] * 7 + [14]


def test_ranges_that_cannot_hold_the_state_of_the_model_are_left_out():
    """Of four nodes with a device each, two hold a model that one does not."""
    here = lab()
    (cluster,) = here.clusters()
    state = memory.state_bytes(here.workload.model.parameters, here.workload, ParallelConfig())
    for share, sizes in ((1.0, [2, 4]), (0.99, [2]), (0.5, [2]), (0.49, [])):
        device = replace(cluster.node.device, memory=share * state)
        fleet = replace(here.topology.fleet, clusters=(replace(cluster, node=replace(cluster.node, device=device)),))
        small = replace(here, topology=replace(here.topology, fleet=fleet))
        assert [len(cut) for cut in with_cut_clusters(small, (("lab",),))] == sizes
        peers = replace(small, wishes=Wishes(offload="parameters"))
        assert [len(cut) for cut in with_cut_clusters(peers, (("lab",),))] == [2, 4]


def test_a_range_that_tunes_adapters_holds_frozen_weights_and_little_more():
    here = lab()
    (cluster,) = here.clusters()
    whole = memory.state_bytes(here.workload.model.parameters, here.workload, ParallelConfig())
    tuned = replace(here, workload=replace(here.workload, adapter=Adapter(2)))
    state = memory.frozen_bytes(tuned.workload, ParallelConfig(), here.workload.model.layers, True, True)
    state += memory.state_bytes(tuned.workload.trained_parameters, tuned.workload, ParallelConfig())
    assert state < whole / 3
    for share, sizes in ((1.0, [2, 4]), (0.99, [2]), (0.49, [])):
        device = replace(cluster.node.device, memory=share * state)
        fleet = replace(here.topology.fleet, clusters=(replace(cluster, node=replace(cluster.node, device=device)),))
        cut = _held(replace(tuned, topology=replace(here.topology, fleet=fleet)), fleet.clusters[0])
        assert [len(one) for one in cut] == sizes


def test_alike_ranges_are_told_together():
    assert partition_text(((NodeRange("a", 0, 1),), (NodeRange("a", 1, 1),), ("b",))) == "a: 2 x 1 node | b"
    assert partition_text(((NodeRange("a", 0, 3),), (NodeRange("a", 3, 2),))) == "a nodes 0-2 | a nodes 3-4"
    assert partition_text((("a", "c"), ("b",))) == "a + c | b"


def test_equal_ranges_have_one_plan_each_on_its_own_nodes():
    lines: list[str] = []
    plans = IslandPlans(lab(rate="4000 Gbit/s"), TimeLimit(20.0), lines.append, 2)
    first, second = plans.plan((NodeRange("lab", 0, 2),), 24), plans.plan((NodeRange("lab", 2, 2),), 24)
    assert plans.runs == 1  # one search
    assert first.config == second.config
    assert {device.node for device in first.placement} == {0, 1}
    assert {device.node for device in second.placement} == {2, 3}
    assert (island_text(second), island_text(plans.plan(("lab",), 24))) == ("lab nodes 2-3", "lab")


def every_cut(nodes: int) -> Iterator[Partition]:
    """All ways to divide consecutive nodes among two or more islands."""
    for borders in itertools.product((False, True), repeat=nodes - 1):
        firsts = [0, *(index + 1 for index, border in enumerate(borders) if border), nodes]
        if len(firsts) > 2:
            spans = itertools.pairwise(firsts)
            yield tuple((NodeRange("lab", a, b - a),) for a, b in spans)


@pytest.mark.parametrize("rate", after(1, ["50 Mbit/s", "1 Gbit/s"], last=1))
def test_no_cut_of_a_cluster_is_better_than_the_one_that_is_found(rate: str):
    """Brute force over all seven ways to divide four nodes, with batches in proportion to their devices."""
    here, allowed = lab(rate=rate), parse("any")
    answer = plan_with_sync(here, allowed)
    plans, rows = IslandPlans(here, TimeLimit(60.0), lambda text: None, 8), []
    for partition in every_cut(4):
        batches = divided(48, tuple(peak(here, names) for names in partition))
        try:
            islands = tuple(map(plans.plan, partition, batches))
        except Infeasible:
            continue
        rows += priced({(partition, batches): islands}, list(allowed.settings(here.workload.model)), lambda plan: "")[0]
    assert len({row.islands for row in rows}) == 7
    assert answer.exact is not None
    fastest = best([*rows, answer.exact])
    assert answer.best.speed >= fastest.speed * (1 - 0.005)
    assert isinstance(answer.best.plan, IslandsPlan)
    assert answer.best.tokens_per_s > 1.5 * answer.exact.tokens_per_s


def test_a_fast_network_is_not_cut():
    fast = lab(rate="4000 Gbit/s")
    answer = plan_with_sync(fast, parse("any"))
    assert not isinstance(answer.best.plan, IslandsPlan)
    assert "the network between nodes is fast enough" in answer.refused
