"""The deadline test of pipelines with a given number of stages, over classes in any order."""

from __future__ import annotations

import itertools
import math

import pytest

from planner.bounds.any_order import AnyOrder
from planner.bounds.deadline_test import deadline_bound
from planner.bounds.kind_filling import (
    NEAR,
    NEARER,
    STATES,
    KindFilling,
    defined_lengths,
    kinds_of,
    least_of_lengths,
    may_have_some_length,
)
from planner.bounds.ordered_stages import OrderedStages
from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes
from planner.search.evaluation import PipelineEvaluation
from planner.search.generation import every_pipeline
from planner.space.shape import Shape
from sim.errors import NoRoute
from sim.hardware.cluster import Trunk
from tests import builders as make
from tests.more import after
from tests.planner.builders import SEARCHED_ONCE, many_clusters, random_request, request

SHAPES = [
    Shape(1, dp, 1, "none", schedule, vpp, 1)
    for dp in (1, 2)
    for schedule, vpp in (("1f1b", 1), ("zb-h2", 1), ("interleaved", 2))
]


class OfLength:
    """The test of one number of stages."""

    def __init__(self, stages: OrderedStages, pp: int, states: int = STATES):
        self.stages, self.pp, self.kinds = stages, pp, kinds_of(stages, states)

    def within(self, seconds: float) -> bool:
        return KindFilling(self.stages, seconds, self.pp, self.kinds).succeeds()


def least_steps(context: PlanningContext, shape: Shape, fewest: int = 2) -> dict[int, float]:
    """The least step of all pipelines on so many classes or more, with each number of stages, by the evaluator."""
    classes, found = node_classes(context, shape), dict[int, float]()
    for number in range(fewest, len(classes) + 1):
        for some in itertools.combinations(classes, number):
            try:
                evaluation = PipelineEvaluation(context, shape, some, True)
            except NoRoute:
                continue
            for seconds, pipeline in evaluation.evaluated(every_pipeline(evaluation) or []):
                pp = len(pipeline)
                found[pp] = min(found.get(pp, math.inf), seconds)
    return found


@pytest.mark.parametrize("states", [1, 400])
@pytest.mark.parametrize("seed", after(6, range(600, 618), last=10))
def test_its_bound_is_not_above_any_pipeline_of_its_length(seed, states):
    """With all classes as one kind, and with few classes as one kind each."""
    context = PlanningContext(random_request(seed))
    for shape in SHAPES:
        if not (classes := node_classes(context, shape)):
            continue
        stages, least = OrderedStages(context, classes).in_any_order(), least_steps(context, shape)
        assert least.keys() <= set(defined_lengths(stages))
        for pp in least:
            assert deadline_bound([OfLength(stages, pp, states)], 0.0, 1e6) <= least[pp] * (1 + 1e-9)


def test_a_schedule_with_virtual_stages_does_not_use_all_devices_of_five_clusters():
    """Four microbatches in two virtual stages pass at most four of the five clusters."""
    question = many_clusters(0, 5, layers=20, batch=4)
    context = PlanningContext(question)
    shape = Shape(1, 1, 1, "none", "interleaved", 2, 1)
    stages = OrderedStages(context, node_classes(context, shape)).in_any_order()
    assert list(defined_lengths(stages)) == [4, 2]
    assert deadline_bound([OfLength(stages, 4)], 0.0, 1e6) > deadline_bound([AnyOrder(stages.order)], 0.0, 1e6) * 1.2


@pytest.mark.parametrize("seed", after(1, [3, 2, 0, 1]))
def test_the_least_bound_of_all_numbers_of_stages(seed):
    """At most 1 % below the least one, and never above it; never below a known bound, nor above a cutoff."""
    context = PlanningContext(many_clusters(seed, 5, layers=8))
    for shape in SHAPES[:3]:
        stages = OrderedStages(context, node_classes(context, shape)).in_any_order()
        least = min(deadline_bound([OfLength(stages, pp)], 0.0, 1e6, 1e-6) for pp in defined_lengths(stages))
        assert least / (1 + NEAR) / (1 + 2e-6) <= least_of_lengths(stages, 0.0, 1e6) <= least * (1 + 2e-6)
        assert least / (1 + NEARER) / (1 + 2e-6) <= least_of_lengths(stages, 0.0, 1e6, NEARER) <= least * (1 + 2e-6)
        assert not may_have_some_length(stages, least * (1 - 1e-6))
        assert may_have_some_length(stages, least * (1 + 3e-6))
        assert least_of_lengths(stages, 2 * least, 1e6) == 2 * least
        assert least_of_lengths(stages, 0.0, least / 2) == least / 2


def test_stages_on_more_clusters_than_one_can_hold_have_borders():
    """Three clusters of two stages over trunks on which a message takes 1.2 s. With 1F1B, the stage before a border sends
    one for each of four microbatches, and the last gradient comes back. Four stages have one border; five have two, and the
    other one delays the begin and the end."""
    nic = make.nic("ethernet", 1e9, latency=1e-6)
    clusters = [make.cluster(name, nodes=2, nics=(nic,)) for name in "abc"]
    trunks = tuple(Trunk(pair, "ethernet", 12_288 / 1.2, 0.0) for pair in itertools.combinations("abc", 2))
    context = PlanningContext(request(make.fleet(*clusters, trunks=trunks), make.model(6), 4, SEARCHED_ONCE))
    stages = OrderedStages(context, node_classes(context, SHAPES[0])).in_any_order()
    four, five = (deadline_bound([OfLength(stages, pp)], 0.0, 1e6) for pp in (4, 5))
    assert four == pytest.approx(5 * 1.2, rel=2e-3)
    assert five == pytest.approx(7 * 1.2, rel=2e-3)


def two_far_clusters(microbatches: int) -> PlanningContext:
    """Two clusters of one device whose messages take 1.2 s, and all else next to nothing; a model of four layers."""
    nic = make.nic("ethernet", 1e9, latency=1e-6)
    trunk = Trunk(("a", "b"), "ethernet", 12_288 / 1.2, 0.0)
    clusters = [make.cluster(name, nics=(nic,)) for name in "ab"]
    return PlanningContext(request(make.fleet(*clusters, trunks=(trunk,)), make.model(4), microbatches, SEARCHED_ONCE))


def test_a_microbatch_returns_to_the_first_stage_for_each_virtual_stage():
    """Ahead over the border, back to the first stage and ahead again; the gradients likewise: six messages of 1.2 s. Of four
    microbatches, ten messages follow one another."""
    for microbatches, messages in ((2, 6), (4, 10)):
        context = two_far_clusters(microbatches)
        shape = Shape(1, 1, 1, "none", "interleaved", 2, 1)
        stages = OrderedStages(context, node_classes(context, shape)).in_any_order()
        bound, step = deadline_bound([OfLength(stages, 2)], 0.0, 1e6), least_steps(context, shape)[2]
        assert bound == pytest.approx(messages * 1.2, rel=2e-3)
        assert bound <= step * (1 + 1e-9)


def test_the_most_similar_classes_are_one_kind():
    """Layers take 1, 1.1, 2 and 2.1 as long: with nine states, the first two are one kind and the last two another."""
    stages = type("Stages", (), {"max_stages": [1, 1, 1, 1], "order": ()})()
    stages.order = [type("Class", (), {"layer_seconds": seconds})() for seconds in (2.1, 1.0, 2.0, 1.1)]
    assert kinds_of(stages) == [[1], [3], [2], [0]]
    assert kinds_of(stages, 9) == [[1, 3], [2, 0]]
