"""Shapes: every (tp, dp, microbatch size, recomputation) that divides the model, the batch and the machines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.limits import Limits
from planner.request import Request, Wishes
from planner.space.shape import Shape
from planner.space.shapes import overlaps, recomputations, searched, searched_schedules, shapes, slot, slots, variants
from sim.errors import Infeasible
from sim.hardware.cluster import Cluster
from sim.plan.allowed import Allowed
from sim.plan.parallel_config import BLOCK
from tests import builders as make
from tests.planner.builders import on_one_cluster, request
from tests.planner.real_nodes import EIGHT_H100, on_real_nodes


def small_request(
    *clusters: Cluster, batch: int = 4, precision: str = "bf16", wishes: Wishes | None = None, **model: object
) -> Request:
    """A request on one node of two devices, or on the clusters given, with a batch of four."""
    machines = make.fleet(*(clusters or (make.cluster("a", devices=2),)))
    return request(machines, make.model(**model), batch, wishes, precision=precision)


def degrees(question: Request, across: bool = False) -> list[tuple[int, int, int]]:
    """(tp, dp, microbatch size) of the shapes without recomputation."""
    return [(s.tp, s.dp, s.microbatch_size) for s in shapes(question, across) if s.recompute == "none"]


def test_all_shapes_of_two_devices():
    found = [
        (1, 1, 1), (1, 1, 2), (1, 1, 4),
        (1, 2, 1), (1, 2, 2),
        (2, 1, 1), (2, 1, 2), (2, 1, 4),
    ]  # fmt: skip
    assert degrees(small_request()) == found
    assert [(s.tp, s.dp, s.microbatch_size, s.recompute) for s in shapes(small_request())] == [
        (*one, recompute) for one in found for recompute in ("none", "full")
    ]
    assert all((s.schedule, s.vpp, s.zero_stage) == ("1f1b", 1, 1) for s in shapes(small_request()))


def test_replicas_stand_in_one_cluster_or_anywhere():
    """2 + 3 devices: dp 3 fits one cluster, dp 4 both (5 does not divide the batch)."""
    clusters = make.cluster("a", nodes=2), make.cluster("b", nodes=3)
    batch = 12
    assert sorted({dp for _, dp, _ in degrees(small_request(*clusters, batch=batch))}) == [1, 2, 3]
    assert sorted({dp for _, dp, _ in degrees(small_request(*clusters, batch=batch), across=True)}) == [1, 2, 3, 4]


def test_a_tensor_degree_divides_heads_mlp_and_vocabulary():
    wide = make.cluster("a", devices=8)
    assert sorted({tp for tp, _, _ in degrees(small_request(wide))}) == [1, 2, 4, 8]
    assert sorted({tp for tp, _, _ in degrees(small_request(wide, vocab=770))}) == [1, 2]
    assert sorted({tp for tp, _, _ in degrees(small_request(wide, heads=4, kv_heads=4))}) == [1, 2, 4]


def test_a_tensor_degree_need_not_be_a_power_of_two_if_it_is_pinned():
    wide = make.cluster("a", devices=6)
    assert sorted({tp for tp, _, _ in degrees(small_request(wide, wishes=Wishes(tp=3)))}) == [3]


@pytest.mark.parametrize(
    ("wishes", "key"),
    [
        (Wishes(tp=2), "tp"), (Wishes(dp=2), "dp"), (Wishes(microbatch_size=2), "microbatch_size"),
        (Wishes(recompute="selective"), "recompute"), (Wishes(schedule="gpipe"), "schedule"),
        (Wishes(zero_stage=0), "zero_stage"), (Wishes(zero_shard_size=2), "zero_shard_size"),
    ],
)  # fmt: skip
def test_a_pinned_dimension_is_kept(wishes, key):
    found = list(shapes(small_request(wishes=wishes)))
    assert found
    assert {getattr(shape, key) for shape in found} == {getattr(wishes, key)}


def test_a_pinned_vpp_asks_for_the_interleaved_schedule():
    assert {(s.vpp, s.schedule) for s in shapes(small_request(wishes=Wishes(vpp=2)))} == {(2, "interleaved")}


def test_the_configuration_of_a_shape():
    question = small_request(batch=12)
    config = Shape(2, 2, 3, "full", "1f1b", 1, 0).config(question.workload, 5)
    assert (config.tp, config.pp, config.dp, config.num_microbatches, config.microbatch_size) == (2, 5, 2, (2, 2), 3)
    assert config.sequence_parallel
    assert config.gradient_precision == "fp32"
    assert not Shape(1, 2, 3, "full", "1f1b", 1, 0).config(question.workload, 5).sequence_parallel
    assert Shape(1, 1, 1, "none", "1f1b", 1, 1).config(small_request(precision="fp16").workload, 1).gradient_precision == "fp16"


def test_slots_fill_one_node_after_the_other():
    """Nodes of five devices hold two pairs; the fifth device stays idle."""
    odd = make.cluster("a", nodes=2, devices=5)
    assert slots(odd, 2) == 4
    assert [[str(device) for device in slot(odd, 2, index)] for index in range(4)] == [
        ["a/node0/dev0", "a/node0/dev1"], ["a/node0/dev2", "a/node0/dev3"],
        ["a/node1/dev0", "a/node1/dev1"], ["a/node1/dev2", "a/node1/dev3"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("wishes", "text"),
    [
        (
            Wishes(tp=4),
            "no layout fits --tp 4; tp 4 must fit inside a node (2 devices) and divide heads 24, ffn_hidden 384 "
            "and vocab 768",
        ),
        (Wishes(dp=3), "no layout fits --dp 3; dp 3 x tp 1 replicas do not fit one cluster, which holds 2"),
        (
            Wishes(tp=2, dp=2),
            "no layout fits --tp 2 --dp 2; dp 2 x tp 2 replicas do not fit one cluster, which holds 1",
        ),
        (Wishes(microbatch_size=3), "no layout fits --microbatch-size 3; microbatch size 3 must divide global_batch_size 4"),
        (
            Wishes(dp=2, microbatch_size=4),
            "no layout fits --dp 2 --microbatch-size 4; dp 2 x microbatch size 4 must divide global_batch_size 4",
        ),
        (Wishes(cp=4), "no layout fits --cp 4; cp 4 x tp 1 replicas do not fit one cluster, which holds 0"),
        (Wishes(cp=3), "cp 3: seq_len 64 must be a multiple of 2 x cp"),
        (Wishes(ep=2), "ep 2 must divide experts 0 of tiny"),
    ],
)  # fmt: skip
def test_no_shape_says_which_demand_fails(wishes, text):
    with pytest.raises(Infeasible) as caught:
        list(shapes(small_request(wishes=wishes)))
    assert str(caught.value) == text


@pytest.mark.parametrize(("dp", "zero", "choices"), [(1, 1, 1), (2, 0, 1), (2, 1, 2), (2, 3, 1)])
def test_when_weights_are_gathered_is_a_choice_where_they_are(dp, zero, choices):
    """One replica and ZeRO 0 gather nothing, ZeRO 3 gathers ahead of every use."""
    question = small_request()
    found = [one.config(question.workload, 1) for one in overlaps(Shape(1, dp, 1, "none", "1f1b", 1, zero))]
    assert [config.overlap_param_gather for config in found] == [True, False][:choices]
    assert len({config.gathers_ahead for config in found}) == choices


def test_no_device_has_the_precision():
    with pytest.raises(Infeasible) as caught:
        list(shapes(small_request(precision="fp8")))
    assert str(caught.value) == "no cluster of tiny has devices with fp8, only with bf16, fp16, fp32"


def test_clusters_without_the_precision_are_left_out():
    old = make.cluster("old", devices=4, spec=make.device("old", peak=(("fp16", 1e14), ("fp32", 2e13))))
    question = small_request(make.cluster("a", devices=2), old)
    assert [cluster.name for cluster in question.clusters()] == ["a"]
    assert max(tp for tp, _, _ in degrees(question)) == 2


def test_zero_vpp_and_microbatch_sizes_of_the_space():
    question = on_real_nodes(
        EIGHT_H100, 1, {"layers": 30, "hidden": 256, "heads": 4, "ffn_hidden": 1024, "vocab": 1024}, 12, 256
    )
    bases = list(searched(question))
    assert {shape.microbatch_size for shape in bases if shape.dp == 1} == {1, 2, 3, 4, 6, 12}
    found = {(shape.schedule, shape.vpp) for shape in variants(question, bases[0])}
    cut = {("interleaved", vpp) for vpp in (2, 3, 4, 5, 6, 8, 10)}
    assert found == {("1f1b", 1), ("zb-h1", 1), ("zb-h2", 1)} | cut
    many = next(shape for shape in bases if shape.dp > 1)
    assert {shape.zero_stage for shape in variants(question, many) if shape.schedule == "zb-h2"} == {1, 2, 3}


@pytest.mark.parametrize(("allowed", "first"), [((2, 3), 2), ((0,), 0), ((3,), 3), ((0, 1), 1)])
def test_a_base_has_the_first_zero_stage_that_is_allowed(allowed, first):
    limits = Limits((("zero_stage", Allowed(allowed)),))
    question = replace(on_one_cluster(layers=4, batch=4, nodes=2), limits=limits)
    assert {shape.zero_stage for shape in shapes(question)} == {first}


def test_stages_choose_what_they_recompute_where_nothing_says_otherwise():
    free = on_one_cluster(layers=4, batch=4, nodes=2)
    assert recomputations(free, by_stage=True) == (BLOCK,)
    assert recomputations(free, by_stage=False) == ("none", "full")
    assert recomputations(replace(free, wishes=Wishes(recompute="full")), by_stage=True) == ("full",)
    pinned = replace(free, wishes=Wishes(recompute=BLOCK))
    assert recomputations(pinned, by_stage=True) == (BLOCK,)
    assert recomputations(pinned, by_stage=False) == ("none", "full")
    listed = replace(free, limits=Limits((("recompute", Allowed(("none",))),)))
    assert recomputations(listed, by_stage=True) == ("none",)
    on_some = replace(free, limits=Limits(on_clusters=(("c", (("recompute", Allowed(("full",))),)),)))
    assert recomputations(on_some, by_stage=True) == ("none", "full", BLOCK)
    assert {shape.recompute for shape in searched(free)} == {BLOCK}
    assert {shape.recompute for shape in searched(free, across=True)} == {"none", "full"}


@pytest.mark.parametrize(
    ("wishes", "chunked"), [({}, True), ({"pp": 2}, True), ({"pp": 1}, False), ({"pp": 1, "schedule": "interleaved"}, True)]
)
def test_one_stage_has_no_virtual_stages_but_where_they_are_pinned(wishes, chunked):
    """Then the search says why there is no plan."""
    question = on_one_cluster(layers=4, wishes=Wishes(**wishes))
    assert any(vpp > 1 for _, vpp in searched_schedules(question)) is chunked


def test_listed_schedules_are_searched_but_for_those_with_a_search_of_their_own():
    limits = Limits((("schedule", Allowed(("1f1b", "dualpipev"))),))
    assert searched_schedules(replace(on_one_cluster(layers=4), limits=limits)) == [("1f1b", 1)]
