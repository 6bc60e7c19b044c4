"""Shapes whose tp differs between device types: which there are, and that a plan has one where devices lack memory."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from benchmarks.certificates.judge import NEAR, judge
from benchmarks.certificates.scarce import scarce
from planner.limits import Limits
from planner.placement.simulation import step
from planner.placement.unlike_degrees import build_unlike
from planner.request import Request, Wishes
from planner.search.searched_space import axes
from planner.space.shapes import searched
from planner.space.unlike_tp import by_memory, has_searched_degrees, unlike_shapes
from sim.formats.topology import load
from sim.hardware.cluster import Trunk
from sim.plan.allowed import Allowed
from tests import builders as make
from tests.more import after, more
from tests.planner.builders import NO_LIMIT, on_one_cluster, plan_of, request, shape

SEEDS = (2045, 57, 0, 372, 173, 1, 339, 2, 488, 594, 635, 741, 776, 1830, 3, 4)
"""Questions whose best plan has unlike tp, and others (0 to 4). In 2045 a stage fits memory under ZeRO 1, not under ZeRO 3."""


GAMING_CARDS = """
format: holmes-sim/topology/1
name: one-of-each
clusters:
  h100:
    nodes: 1
    node:
      devices: {type: h100-sxm5-80gb, count: 8}
      intra_node: nvlink3
      nics: [{type: ethernet, bandwidth: 100 Gbit/s, count: 1}]
  cards:
    nodes: 1
    node:
      devices: {type: rtx-3090, count: 8}
      intra_node: pcie4
      nics: [{type: ethernet, bandwidth: 100 Gbit/s, count: 1}]
links:
  - {between: [h100, cards], type: ethernet, bandwidth: 400 Gbit/s, latency: 20 us}
workload: {model: llama-2-13b, global_batch_size: 64, seq_len: 4096, precision: fp16}
"""


def question(wishes: Wishes | None = None, tied: bool = False, memory: float = 80e9) -> Request:
    """A node of four devices `large` and one of four devices `small`, which have 0.09 GB of memory."""
    nics = (make.nic("ethernet", 1e10),)
    clusters = [
        make.cluster(name, devices=4, nics=nics, spec=make.device(name, 1e12, memory=room))
        for name, room in (("small", memory), ("large", 80e9))
    ]
    machines = make.fleet(*clusters, trunks=(Trunk(("small", "large"), "ethernet", 1e10, 0.0),))
    return request(machines, make.model(4, 384, tied_embeddings=tied), 4, wishes)


def degrees(asked: Request) -> list[tuple[int, tuple[tuple[str, int], ...]]]:
    """(largest tp, the smaller tp of clusters) of the shapes with dp 1 and microbatches of one sequence."""
    found = unlike_shapes(asked, searched(asked))
    return sorted({(one.tp, one.cluster_tp) for one in found if (one.dp, one.microbatch_size) == (1, 1)})


def names(asked: Request) -> tuple[list[str], list[str]]:
    ample, scarce = by_memory(asked)
    return [cluster.name for cluster in ample], [cluster.name for cluster in scarce]


def joined(**memories: float) -> Request:
    """Nodes of two devices with so much memory in GB, all joined."""
    clusters = [make.cluster(name, devices=2, spec=make.device(name, memory=room * 1e9)) for name, room in memories.items()]
    trunks = tuple(Trunk(pair, "infiniband", 1e10, 0.0) for pair in itertools.combinations(memories, 2))
    return request(make.fleet(*clusters, trunks=trunks), make.model(4))


def test_devices_with_more_memory_have_the_smaller_degree():
    asked = question(memory=40e9)
    assert names(asked) == (["large"], ["small"])
    assert degrees(asked) == [(2, (("large", 1),)), (4, (("large", 1),)), (4, (("large", 2),))]


@pytest.mark.parametrize(
    ("memories", "parts"),
    [
        ({"a": 10, "b": 80, "c": 40}, (["b", "c"], ["a"])),
        ({"a": 30, "b": 80, "c": 40}, (["b"], ["c", "a"])),
        ({"a": 20, "b": 80, "c": 40}, (["b"], ["c", "a"])),
        ({"a": 40, "b": 80, "c": 80, "d": 40}, (["b", "c"], ["a", "d"])),
        ({"a": 80, "b": 80}, (["a", "b"], [])),
    ],
)
def test_types_are_cut_where_memory_falls_most(memories, parts):
    asked = joined(**memories)
    assert names(asked) == parts
    assert degrees(asked) == ([(2, tuple((name, 1) for name in parts[0]))] if parts[1] else [])


@pytest.mark.parametrize(("nodes", "searches"), [(63, True), (64, False)])
def test_large_fleets_have_one_degree(nodes, searches):
    clusters = [
        make.cluster("a", nodes, 4, spec=make.device("a", memory=80e9)),
        make.cluster("b", 1, 4, spec=make.device("b", memory=40e9)),
    ]
    asked = request(make.fleet(*clusters, trunks=(Trunk(("a", "b"), "infiniband", 1e10, 0.0),)), make.model(4))
    assert any(unlike_shapes(asked, searched(asked))) is searches


@pytest.mark.parametrize("wishes", [Wishes(tp=2), Wishes(cp=2), Wishes(dp=2, zero_shard_size=2)])
def test_pins_that_leave_one_degree(wishes):
    assert not list(unlike_shapes(question(wishes), searched(question(wishes))))


def test_one_type_has_one_degree():
    asked = on_one_cluster(devices=4)
    assert not list(unlike_shapes(asked, searched(asked)))


def test_a_limit_of_a_cluster_refuses_its_degree():
    asked = question(memory=40e9)
    free = replace(asked, limits=Limits(on_clusters=(("large", (("tp", Allowed(least=2)),)),)))
    assert degrees(free) == [(4, (("large", 2),))]


@more
def test_a_plan_for_one_large_and_one_small_node_has_unlike_degrees(tmp_path):
    """Each of two replicas has a first stage of four RTX 3090 and four stages of one H100."""
    (tmp_path / "topology.yaml").write_text(GAMING_CARDS, encoding="utf-8")
    fleet = load(tmp_path / "topology.yaml")
    asked = Request(fleet, fleet.workload, Wishes(schedule="zb-h1"), NO_LIMIT)
    found, alike = plan_of(asked), [plan_of(replace(asked, wishes=replace(asked.wishes, tp=tp))) for tp in (1, 2)]
    assert (found.config.tp_text, found.config.zero_stage) == ("1x4+4x1", 1)
    assert [stage.layers for stage in found.stages] == [9, 10, 10, 10, 1]
    assert step(found) == pytest.approx(5.8233, abs=5e-4)
    assert [round(step(one), 3) for one in alike] == [5.905, 6.337]


@pytest.mark.parametrize("seed", after(1, SEEDS, last=8))
def test_no_bound_is_above_the_best_plan_of_devices_with_unlike_memory(seed):
    verdict = judge(seed, 1_500, scarce)
    assert not {"bound", "order", "feasible"} & set(verdict.faults), verdict
    assert verdict.step_s <= verdict.best_s * (1 + NEAR) or verdict.mixed, verdict
    assert seed != SEEDS[0] or "best plan has unlike tp" in verdict.features


@pytest.mark.parametrize(("on_small", "on_large", "searched_tp"), [(2, 1, True), (4, 2, True), (1, 2, False), (2, 2, True)])
def test_a_plan_says_whether_its_degrees_are_searched(on_small, on_large, searched_tp):
    asked = question(memory=40e9)
    own = [("small", shape(tp=on_small), 2), ("large", shape(tp=on_large), 2)]
    assert has_searched_degrees(asked, build_unlike(asked, own, "by hand")) is searched_tp
    split = [("small", shape(tp=on_small, dp=2), 2), ("large", shape(tp=on_large, microbatch_size=2), 2)]
    assert on_small == 4 or not has_searched_degrees(asked, build_unlike(asked, split, "by hand"))


def test_the_searched_space_names_the_types():
    values = {axis.name: axis.values for axis in axes(question(memory=40e9))}
    assert values["stage_tp"] == ("smaller on large than on small",)
    assert "stage_tp" not in {axis.name for axis in axes(question(Wishes(tp=1)))}
