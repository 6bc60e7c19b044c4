"""Data-parallel degrees that do not divide the batch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes
from planner.placement.ranks import build
from planner.placement.simulation import simulate_plan, step
from planner.request import Request, Wishes
from planner.search.evaluation import PipelineEvaluation
from planner.space.shape import Shape
from planner.space.shapes import searched, variants
from planner.space.unequal_batches import is_faster_with, replicas_of_whole_clusters
from planner.strategies import get
from tests import builders as make
from tests.planner.builders import NO_LIMIT, request


def question(batch: int = 16, wishes: Wishes | None = None, nodes: int = 3) -> Request:
    """Nodes of four devices: 12 slots."""
    return request(make.fleet(make.cluster("c", nodes=nodes, devices=4)), make.model(4), batch, wishes)


def degrees(asked: Request, tp: int = 1) -> set[int]:
    return {shape.dp for shape in searched(asked) if shape.tp == tp}


def test_dp_fills_a_cluster_with_one_to_four_stages():
    """12 slots hold stages of 12, 6, 4 or 3 replicas. Of 1,024 sequences 12 replicas take 86 or 85, 6 take 171 or 170."""
    assert replicas_of_whole_clusters(1024, [(12, 1)]) == [3, 6, 12]
    assert replicas_of_whole_clusters(1024, [(12, 1), (24, 1)]) == [3, 6, 12, 24]
    assert replicas_of_whole_clusters(720, [(12, 1)]) == [], "all of these divide the batch"


def test_of_equally_fast_dp_the_least_is_searched():
    """1,600 replicas would take 11 sequences at most of 16,384; 1,490 do so, too."""
    assert -(-16_384 // 1_600) == -(-16_384 // 1_490) == 11
    assert -(-16_384 // 1_489) == 12
    assert 1_490 in replicas_of_whole_clusters(16_384, [(1_600, 1)])
    assert 1_492 in replicas_of_whole_clusters(16_384, [(1_600, 8)]), "half nodes of eight replicas"


def test_stages_begin_at_nodes_or_half_nodes():
    """Three stages of 41 replicas on 123 slots would begin anywhere in nodes of eight; two of 20 on 40 begin at half nodes."""
    assert 41 in replicas_of_whole_clusters(1024, [(123, 1)])
    assert not {dp for dp in replicas_of_whole_clusters(1024, [(123, 8)]) if dp % 4}
    assert 20 in replicas_of_whole_clusters(1024, [(40, 8)])


def test_no_dp_is_searched_that_leaves_every_replica_as_many_sequences_as_a_divisor():
    """7 replicas of 8 sequences: the fullest has 2, as with dp 4."""
    assert replicas_of_whole_clusters(8, [(7, 1)]) == [3], "3 replicas have 3, 3 and 2 sequences; dp 2 has 4 each"


@pytest.mark.parametrize(
    ("batch", "dp", "size", "able"),
    [
        (1024, 12, 1, True),  # 86 sequences, in place of 128 with dp 8
        (1024, 12, 32, True),  # 3 microbatches of 32: 96
        (1024, 12, 64, False),  # 2 microbatches of 64: 128, as with dp 8
        (1024, 12, 3, False),  # does not divide the batch
        (16, 12, 2, False),  # 8 microbatches for 12 replicas
    ],
)
def test_only_microbatch_sizes_that_gain_are_searched(batch, dp, size, able):
    assert is_faster_with(batch, dp, size) is able


def test_the_search_has_such_degrees_unless_something_needs_equal_replicas():
    assert degrees(question()) == {1, 2, 4, 8} | {6}, "3 replicas would leave a device of each node of four"
    assert degrees(question(batch=64)) == {1, 2, 4, 8} | {6, 12}
    for wishes in (Wishes(zero_stage=2), Wishes(schedule="interleaved"), Wishes(vpp=2)):
        assert degrees(question(wishes=wishes)) == {1, 2, 4, 8}
    assert degrees(question(wishes=Wishes(dp=5))) == {5}, "a pinned one need not fill a cluster"


def test_virtual_stages_and_zero_2_need_equal_replicas():
    asked = question(batch=64)
    unequal = next(shape for shape in searched(asked) if shape.dp == 12)
    assert {(one.schedule, one.vpp, one.zero_stage) for one in variants(asked, unequal)} == {
        ("1f1b", 1, 1), ("zb-h1", 1, 1), ("zb-h2", 1, 1),
    }  # fmt: skip


def test_the_first_replicas_have_one_microbatch_more():
    asked = question(batch=16)
    plan = build(asked, Shape(1, 6, 1, "none", "1f1b", 1, 1), (("c", 2), ("c", 2)), "by hand")
    assert plan.config.num_microbatches == (3, 3, 3, 3, 2, 2)
    assert sum(plan.config.num_microbatches) * plan.config.microbatch_size == 16


def test_the_step_is_that_of_the_replicas_with_most_microbatches():
    """12 replicas in one stage: 20 sequences take as long as 24, where nothing shares the network."""
    shape, found = Shape(1, 12, 1, "none", "1f1b", 1, 1), []
    for batch in (20, 24):
        asked = question(batch=batch)
        context = PlanningContext(asked)
        evaluation = PipelineEvaluation(context, shape, tuple(node_classes(context, shape)))
        seconds = evaluation.evaluated([((0, 4),)])[0][0]
        assert step(simulate_plan(build(asked, shape, (("c", 4),), "by hand"))) == pytest.approx(seconds, rel=1e-9)
        found.append(seconds)
    assert found[0] == pytest.approx(found[1], rel=1e-12)


def test_a_fleet_that_no_divisor_fills_is_used_whole():
    """18 replicas have 57 of 1,024 sequences at most, 16 replicas 64."""
    wishes = Wishes(tp=1, pp=1, microbatch_size=1, schedule="1f1b")
    asked = request(make.fleet(make.cluster("c", nodes=6, devices=3)), make.model(4), 1024, wishes)
    plan = get("certified").plan(replace(asked, time_limit=NO_LIMIT), PlanningContext(asked))
    assert plan.config.dp == 18
    assert set(plan.config.num_microbatches) == {56, 57}
