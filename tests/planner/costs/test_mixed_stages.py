"""Costs, memory and messages of stages whose replicas are on several clusters."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress

import pytest

from planner.costs import mixed_stages
from planner.costs.context import PlanningContext
from planner.costs.mixed_stages import MixedStageCosts
from planner.costs.node_classes import node_classes
from planner.request import Request
from planner.search.mixed import mixed_placements
from planner.space.device_slots import Run, StageSlots, cut
from planner.space.shape import Shape
from planner.space.shapes import slot, slots
from sim.analytic.stage_costs import StageCosts
from sim.errors import Infeasible
from sim.formats import topology
from tests.more import after
from tests.planner.builders import random_request_with_experts_or_long_sequences, shape
from tests.planner.costs.fast_and_slow import BYTES, fast_and_slow


def test_a_stage_is_as_slow_as_its_slowest_device():
    question = fast_and_slow()
    costs, (a, b) = MixedStageCosts(PlanningContext(question)), question.clusters()
    (mixed,) = cut((a, b), 1, 8)
    one = shape(dp=8)
    middle = (False, False)
    slow, fast = (costs.linear_seconds(one, mixed, middle, cluster.node.device)[1] for cluster in (b, a))
    assert slow == pytest.approx(2 * fast, rel=2e-3)
    assert costs.linear_seconds(one, mixed, middle)[1] == pytest.approx(slow)
    assert costs.cost(one, mixed, 3, middle).both == pytest.approx(3 * slow)


def test_a_line_is_the_sum_of_a_fixed_part_and_one_for_each_layer():
    """The last stage has logits; a middle stage has nothing but layers."""
    question = fast_and_slow()
    costs, (a, _) = MixedStageCosts(PlanningContext(question)), question.clusters()
    stage, one = (Run(a, 0, 2),), shape(dp=2)
    start, each = costs.linear_seconds(one, stage, (False, False))
    assert start == pytest.approx(0.0, abs=1e-12)
    (option, _) = node_classes(PlanningContext(question), one)
    assert each == pytest.approx(option.layer_seconds)
    logits, same = costs.linear_seconds(one, stage, (False, True))
    assert same == pytest.approx(each)
    assert logits == pytest.approx(3 * 2 * 64 * 96 * 768 / 2e9, rel=1e-2)
    assert costs.own_seconds(one, Run(a, 0, 2), (False, True)) == pytest.approx((logits, each))
    assert costs.least_seconds(one, Run(a, 0, 4), (False, True)) == pytest.approx((logits, each))


def test_the_smallest_device_limits_the_memory():
    needed = {}
    question = fast_and_slow()
    costs, (a, b) = MixedStageCosts(PlanningContext(question)), question.clusters()
    (mixed,) = cut((a, b), 1, 8)
    one = shape(dp=8)
    needed[3], limit = costs.bytes_at(one, mixed, 3, 1, 3, 1)
    assert limit == 40e9
    tight = fast_and_slow((80e9, needed[3]))
    costs, clusters = MixedStageCosts(PlanningContext(tight)), tuple(tight.clusters())
    (mixed,) = cut(clusters, 1, 8)
    assert costs.most(one, mixed, 1, 3, 1) == 3
    assert costs.most(one, (Run(clusters[0], 0, 4),), 1, 3, 1) > 3


def test_messages_cross_the_slowest_border_there_and_back():
    question = fast_and_slow()
    costs, (a, b) = MixedStageCosts(PlanningContext(question)), question.clusters()
    two = shape(dp=2)
    inside, across = costs.messages(two, ((Run(a, 0, 2),), (Run(a, 2, 2),), (Run(b, 0, 2),)))
    assert inside == pytest.approx(2 * BYTES / 1e7)
    assert across == pytest.approx(2 * BYTES / 1e6)


def test_seconds_per_byte_are_those_of_the_slowest_link():
    question = fast_and_slow()
    costs, (a, b) = MixedStageCosts(PlanningContext(question)), question.clusters()
    x, y, z, w = slot(a, 1, 0)[0], slot(a, 1, 1)[0], slot(a, 1, 2)[0], slot(b, 1, 0)[0]
    assert costs.per_byte([(x, y)]) == pytest.approx(1e-8)
    assert costs.per_byte([(x, y), (x, z)]) == pytest.approx(1e-7)
    assert costs.per_byte([(x, y), (x, z), (x, w)]) == pytest.approx(1e-6)
    assert costs.per_byte([]) == 0.0


@pytest.mark.parametrize("name", ["holmes-hybrid-4", "peers/hexiscale-a-40", "mixed-h100-a100-v100"])
def test_replicas_have_the_passes_of_their_own_devices(name):
    """Those inside one node share them; on their own devices they take the same to the last bit."""
    where = topology.load(f"topologies/{name}.yaml")
    question = Request(where, where.workload)
    costs = MixedStageCosts(PlanningContext(question))
    for cluster in question.clusters():
        for tp, cp in ((1, 1), (2, 1), (4, 1), (1, 2), (1, 3), (2, 2)):
            one = shape(tp=tp, dp=1, cp=cp)
            for first in range(min(slots(cluster, tp) - cp, 8) + 1) if tp <= cluster.node.count else ():
                run = Run(cluster, first, cp)
                own = StageCosts(costs.workload, costs.config(one, 2), costs.collectives(one, (run,)))
                ones, twos = (own.alone(layers, False, False) for layers in (1, 2))
                each = tuple((2 * a - b, b - a) for a, b in zip(ones, twos, strict=True))
                assert costs.own_passes(one, run, (False, False)) == each


@pytest.mark.parametrize("seed", after(4, range(60), last=20))
def test_one_group_of_each_cluster_has_the_passes_of_all(seed, monkeypatch):
    """Of stages on one and on two clusters whose experts, or parts of a sequence, are divided."""
    question = random_request_with_experts_or_long_sequences(seed)
    few, all_ranks = MixedStageCosts(PlanningContext(question)), MixedStageCosts(PlanningContext(question))
    for one, placed in itertools.islice(_divided(question), 20):
        for i, stage in enumerate(placed):
            ends = i == 0, i == len(placed) - 1
            found = few.linear_seconds(one, stage, ends)
            with monkeypatch.context() as patched:
                patched.setattr(mixed_stages, "_one_block_of_each", lambda shape, stage: (shape, stage))
                assert found == pytest.approx(all_ranks.linear_seconds(one, stage, ends), rel=1e-12, abs=1e-15)


def _divided(question: Request) -> Iterator[tuple[Shape, tuple[StageSlots, ...]]]:
    """Placements with cp or ep; none where the request has no shape."""
    with suppress(Infeasible):
        yield from (pair for pair in mixed_placements(question) if max(pair[0].cp, pair[0].ep) > 1)
