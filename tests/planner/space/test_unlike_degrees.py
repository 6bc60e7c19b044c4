"""Which requests may have plans of unlike dp, and the shapes of their clusters."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from holmes_sim import exporters
from holmes_sim.targets import any_framework
from planner.request import Wishes
from planner.space.shapes import searched
from planner.space.unlike_degrees import are_unlike, matching, may_differ, may_tie, own_shapes, templates, tried_degrees
from sim.hardware.cluster import Trunk
from tests import builders as make
from tests.planner.builders import on_one_cluster, request, shape
from tests.planner.unlike_degrees import PINNED, question


def test_several_clusters_may_have_unlike_dp():
    assert may_differ(question())
    assert not may_differ(on_one_cluster(nodes=2, devices=2))
    assert not may_differ(question(replace(PINNED, pp=1)))
    assert may_differ(question(replace(PINNED, pp=2, microbatch_size=2)))


def test_a_tied_embedding_needs_a_stage_between_both_ends():
    clusters = [make.cluster(name, 1, 2) for name in "abc"]
    trunks = tuple(Trunk(pair, "infiniband", 1e10, 0.0) for pair in (("a", "b"), ("b", "c"), ("a", "c")))
    model = make.model(4, tied_embeddings=True)
    assert may_differ(request(make.fleet(*clusters, trunks=trunks), model))
    assert not may_differ(request(make.fleet(*clusters[:2], trunks=trunks[:1]), model))


def test_ends_with_a_tied_embedding_have_equal_dp_and_cp_and_equal_tp_where_the_optimizer_state_is_sharded():
    assert may_tie(shape(tp=2, dp=2), shape(tp=2, dp=2))
    assert not may_tie(shape(dp=2), shape(dp=4))
    assert not may_tie(shape(dp=2), shape(dp=2, cp=2))
    assert not may_tie(shape(tp=1, dp=2), shape(tp=2, dp=2))
    assert may_tie(shape(tp=1, dp=2, zero_stage=0), shape(tp=2, dp=2, zero_stage=0))
    assert may_tie(shape(tp=1), shape(tp=2))  # one replica shards nothing


@pytest.mark.parametrize(("nodes", "may"), [(63, True), (64, False)])
def test_large_fleets_have_one_dp(nodes, may):
    machines = make.fleet(
        make.cluster("a", nodes, 4), make.cluster("b", 1, 4), trunks=(Trunk(("a", "b"), "infiniband", 1e10, 0.0),)
    )
    assert may_differ(request(machines, make.model(4))) is may


@pytest.mark.parametrize(("name", "may"), [("flagscale", True), ("torchrun", True), ("megatron", False), ("deepspeed", False)])
def test_the_target_must_launch_such_plans(name, may):
    assert may_differ(replace(question(), target=exporters.target(name))) is may


@pytest.mark.parametrize(
    ("asked", "target", "degrees"),
    [
        (question(), "", ("dp",)),
        (question(seq_len=8192), "", ("dp", "cp")),
        (question(replace(PINNED, cp=1), seq_len=8192), "", ("dp",)),
        (question(seq_len=8192), "flagscale", ("dp",)),
        (question(seq_len=8192), "slurm", ("dp", "cp")),
        (question(experts=4), "", ("dp", "ep", "etp")),
        (question(replace(PINNED, ep=2), experts=4), "", ("dp",)),
        (question(experts=4), "flagscale", ("dp", "ep", "etp")),
        (question(experts=4), "torchrun", ("dp", "ep", "etp")),
        (question(experts=4), "megatron", ()),
    ],
)
def test_further_degrees_differ_where_several_are_searched_and_the_target_takes_them(asked, target, degrees):
    assert tried_degrees(replace(asked, target=exporters.target(target) if target else None)) == degrees


def test_stages_that_may_be_beside_each_other_have_one_cp_where_the_target_takes_no_other():
    """FlagScale divides experts on all stages or on none, and has one cp."""
    asked = question(experts=4)
    whole, divided = [shape(tp=tp) for tp in (1, 4)], [shape(ep=2), shape(ep=4)]
    assert matching(asked, [*whole, *divided]) == [[*whole, *divided]]
    assert matching(replace(asked, target=exporters.target("flagscale")), [*whole, *divided]) == [whole, divided]
    long, four = question(seq_len=8192), shape(tp=4, cp=2)
    short, chunks = shape(), shape(cp=2)
    assert matching(long, [short, chunks, four]) == [[short, chunks, four]]
    assert matching(replace(long, target=any_framework()), [short, chunks, four]) == [[short], [chunks, four]]


@pytest.mark.parametrize(
    ("shapes", "unlike"),
    [
        ([shape(tp=4), shape(tp=4, cp=2)], True), ([shape(tp=1), shape(tp=4, cp=2)], True),
        ([shape(tp=3), shape(tp=3, cp=2)], False), ([shape(tp=6), shape(tp=2, cp=2)], False),
        ([shape(tp=3), shape(tp=6)], True), ([shape(tp=4, cp=2)], False), ([shape(dp=2), shape(dp=3)], False),
    ],
)  # fmt: skip
def test_unlike_degrees_divide_one_another_and_tokens_match(shapes, unlike):
    assert are_unlike(shapes) is unlike


def test_any_framework_may_be_the_one_that_does():
    assert may_differ(replace(question(), target=any_framework()))


def test_each_tp_has_a_shape_under_each_schedule_that_the_target_runs():
    asked = question(Wishes(zero_stage=1))
    found = templates(asked, searched(asked))
    assert {(one.tp, one.schedule) for one in found} == set(itertools.product((1, 2, 4), ("1f1b", "zb-h1", "zb-h2")))
    assert len(found) == 9 and {(one.recompute, one.vpp, one.zero_stage) for one in found} == {("block", 1, 1)}
    for_one = replace(asked, target=exporters.target("flagscale"))
    assert {one.schedule for one in templates(for_one, searched(for_one))} == {"1f1b"}


@pytest.mark.parametrize(
    ("degrees", "differ"),
    [
        (((1, 2, 1), (1, 2, 1)), False),
        (((1, 2, 1), (2, 2, 1)), True),
        (((1, 2, 1), (1, 4, 1), (1, 8, 1)), True),
        (((1, 2, 1), (1, 3, 1)), False),  # neither dp divides the other
        (((1, 2, 2), (1, 4, 1)), True),
    ],
)
def test_degrees_are_unlike_where_one_divides_the_other(degrees, differ):
    assert are_unlike(shape(tp=tp, dp=dp, cp=cp) for tp, dp, cp in degrees) is differ


def test_stages_that_divide_experts_otherwise_are_unlike():
    assert are_unlike((shape(dp=4, ep=2), shape(dp=4, ep=4)))
    assert are_unlike((shape(tp=2, dp=2, ep=2), shape(tp=2, dp=2, ep=2, etp=1)))
    assert not are_unlike((shape(dp=4, ep=2), shape(dp=4, ep=2)))


def test_all_ranks_of_a_stage_have_the_samples():
    found = list(own_shapes(question(), shape(tp=2), 6))
    assert [(one.tp, one.dp, one.microbatch_size) for one in found] == [(2, 1, 6), (2, 2, 3)]
    assert {one.microbatches(request(make.fleet(make.cluster()), make.model(), 12).workload) for one in found} == {2}
