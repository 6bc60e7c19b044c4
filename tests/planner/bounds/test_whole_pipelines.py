"""Bounds of whole pipelines: never above the evaluator's steps, and in agreement with the listing."""

from __future__ import annotations

import math

import numpy as np
import pytest

from planner.bounds.deadline_test import deadline_bound
from planner.bounds.ordered_stages import OrderedStages
from planner.bounds.orders import deadline_tests
from planner.bounds.whole_pipelines import least_steps
from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes, under
from planner.request import Request, Wishes
from planner.search.evaluation import PipelineEvaluation
from planner.space.shape import Shape
from planner.space.shapes import overlaps
from sim.formats.topology import load
from sim.plan.schedules import is_defined
from tests.more import after
from tests.planner.builders import NO_LIMIT, random_request

SCHEDULES = (("1f1b", 1), ("zb-h1", 1), ("zb-h2", 1), ("gpipe", 1), ("1f1b-deepspeed", 1), ("interleaved", 2))


@pytest.mark.parametrize("seed", after(3, (*range(501, 514), 500), last=9))
def test_no_bound_is_above_the_step_of_its_pipeline(seed):
    """Under every schedule, of every pipeline that the deadline test leaves within twice the fastest step."""
    question = random_request(seed)
    context, tested = PlanningContext(question), 0
    for schedule, vpp in SCHEDULES:
        shape = Shape(1, 1, 1, "none", schedule, vpp, 1)
        classes = node_classes(context, shape)
        for test in deadline_tests(context, classes, math.inf) if classes else ():
            stages, evaluation = OrderedStages(context, test.order), PipelineEvaluation(context, shape, test.order)
            for pipeline in test.pipelines(1e9, 2_000) or ():
                order, layers = zip(*pipeline, strict=True)
                assert is_defined(schedule, len(order), shape.microbatches(question.workload), vpp)
                bound = least_steps(stages, order, np.array([layers]))[0]
                (seconds, _), *_ = evaluation.evaluated([pipeline])
                assert 0 < bound <= seconds * (1 + 1e-9)
                tested += 1
    assert tested or len(classes) == 1


@pytest.mark.parametrize(
    ("topology", "shape"),
    [
        ("holmes-hybrid-4", Shape(2, 4, 4, "none", "interleaved", 3, 1)),
        ("holmes-three-environments-12", Shape(1, 32, 2, "none", "interleaved", 2, 1)),
        ("mixed-h100-a100-v100", Shape(2, 4, 1, "none", "zb-h2", 1, 1)),
        ("mixed-h100-a100-v100", Shape(2, 4, 1, "full", "interleaved", 5, 1)),
        ("hethub-768", Shape(4, 16, 1, "none", "interleaved", 5, 1)),
    ],
)
def test_no_bound_is_above_the_step_on_a_shipped_topology(topology, shape):
    """Virtual stages of unlike sizes and messages between clusters included; some bound is within a tenth of the step."""
    read = load(f"topologies/{topology}.yaml")
    context = PlanningContext(Request(read, read.workload, Wishes(), NO_LIMIT))
    tests, ratios = deadline_tests(context, node_classes(context, shape), 1e4), []
    least = deadline_bound(tests, 0.0, 1e4)
    for test in tests:
        stages, evaluation = OrderedStages(context, test.order), PipelineEvaluation(context, shape, test.order)
        found = next(filter(None, (test.pipelines(least * (1 + part / 20), 50_000) for part in range(1, 9))), [])
        for seconds, pipeline in evaluation.evaluated(found[:: len(found) // 200 + 1]):
            ratios.append(least_steps(stages, *_columns(pipeline))[0] / seconds)
    assert ratios
    assert 0.9 < max(ratios) <= 1 + 1e-9


def test_pipelines_are_those_whose_bound_is_not_longer():
    """The listing and the bound agree: each listed pipeline has a bound within the seconds, and none is listed twice."""
    question = random_request(3)
    context = PlanningContext(question)
    shape = Shape(1, 1, 1, "none", "1f1b", 1, 1)
    for test in deadline_tests(context, node_classes(context, shape), math.inf):
        every = test.pipelines(1e9, 2_000)
        assert every and len(every) == len(set(every))
        bounds = {one: least_steps(test.stages, *_columns(one))[0] for one in every}
        middle = sorted(bounds.values())[len(bounds) // 2]
        listed = set(test.pipelines(middle, 2_000) or ())
        assert listed <= {one for one, bound in bounds.items() if bound <= middle}
        assert min(bounds, key=lambda one: bounds[one]) in listed


def _columns(pipeline):
    order, layers = zip(*pipeline, strict=True)
    return order, np.array([layers])


@pytest.mark.parametrize("seed", after(3, range(600, 660), last=3))
def test_all_pipelines_are_listed_that_finish_in_time_with_gathers_in_either_place(seed, monkeypatch):
    """Replicas of two, whose gathers come before the forwards or after the optimizer; the list is no longer than that by bounds
    that leave the gathers out."""
    question = random_request(seed)
    context = PlanningContext(question)
    for schedule, vpp in SCHEDULES:
        shape = Shape(1, 2, 1, "none", schedule, vpp, 1)
        classes = node_classes(context, shape)
        for test in deadline_tests(context, classes, 1e4, True) if classes else ():
            every = test.pipelines(1e9, 2_000) or []
            evaluations = [
                PipelineEvaluation(context, one, under(context, one, test.order), least=True) for one in overlaps(shape)
            ]
            steps = {one: min(each.evaluated([one])[0][0] for each in evaluations) for one in every[:: len(every) // 50 + 1]}
            for seconds in sorted(steps.values())[:: len(steps) // 4 + 1]:
                seconds *= 1 + 1e-9
                monkeypatch.setattr("planner.bounds.deadline_test.MANY", 10**9)
                without = set(test.pipelines(seconds, 2_000) or ())
                monkeypatch.setattr("planner.bounds.deadline_test.MANY", 1)
                listed = set(test.pipelines(seconds, 2_000) or ())
                assert {one for one, step in steps.items() if step <= seconds} <= listed <= without


def test_gathers_rule_out_most_pipelines_of_slow_links(monkeypatch):
    """On peers/dtfm-1-spot, gathers take a twentieth of a step."""
    read = load("topologies/peers/dtfm-1-spot.yaml")
    context = PlanningContext(Request(read, read.workload, Wishes(), NO_LIMIT))
    shape = Shape(1, 8, 1, "block", "1f1b", 1, 1)
    test = next(test for test in deadline_tests(context, node_classes(context, shape), 13.0, True) if len(test.order) > 1)
    few = test.pipelines(12.6, 20_000)
    monkeypatch.setattr("planner.bounds.deadline_test.MANY", 10**9)
    assert len(few) < 500 and len(test.pipelines(12.6, 20_000)) > 10_000
