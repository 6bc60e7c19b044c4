"""Rough estimates of candidates against the closed form of the plans they become, with the engine as judge."""

from __future__ import annotations

import json

import pytest

from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes
from planner.placement.ranks import build
from planner.request import Request, Wishes
from planner.search import candidates
from planner.search.candidates import estimates
from planner.search.evaluation import PipelineEvaluation
from planner.search.rough_estimate import rough_seconds
from planner.space.shape import Shape
from sim.analytic.plan_costs import step_seconds
from sim.engine.engine import simulate
from sim.errors import NotModelled
from sim.hardware.topology import Topology
from sim.workload.workload import Workload
from tests import builders
from tests.planner.builders import on_one_cluster, pipelines, shape

SCHEDULES = ["1f1b", "gpipe", "zb-h1", "zb-h2"]


@pytest.fixture
def priced():
    """A schedule -> (stages, rough estimate, closed form, engine) of every pipeline of six layers and two microbatches.

    Three alike nodes of one device, with messages that take a few percent of a microbatch."""

    def pipelines(schedule: str) -> list[tuple[object, float, float, float]]:
        nic = builders.nic("ethernet", 1e6, latency=3e-3)
        machines = builders.fleet(builders.cluster(nodes=3, nics=(nic,), spec=builders.device(speed=1e9, memory_bandwidth=1e9)))
        workload = Workload(builders.model(6), 2, 64, "bf16")
        request = Request(Topology("tiny", "", machines, workload, json.dumps({"name": "tiny"})), workload, Wishes())
        shape, context = Shape(1, 1, 1, "none", schedule, 1, 1), PlanningContext(request)
        found = []
        for estimate in estimates(context, shape, node_classes(context, shape)):
            stages = estimate.evaluated().stages
            plan = build(request, shape, stages, "by hand")
            rough = rough_seconds(estimate.evaluation, estimate.pipeline)
            found.append((stages, rough, step_seconds(plan), simulate(plan).step_s))
        return found

    return pipelines


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_engine_is_never_faster_than_the_closed_form_and_meets_it_on_some_pipelines(priced, schedule):
    found = priced(schedule)
    assert len({len(stages) for stages, *_ in found}) == 3
    assert all(closed <= engine * (1 + 1e-9) for _, _, closed, engine in found)
    assert any(len(stages) > 1 and closed == pytest.approx(engine, rel=1e-9) for stages, _, closed, engine in found)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_rough_estimate_is_the_closed_form_of_its_plan(priced, schedule):
    for stages, rough, closed, _ in priced(schedule):
        assert rough == pytest.approx(closed, rel=1e-9), stages


@pytest.mark.parametrize("most", [1, 2, 4])
def test_the_first_candidate_is_the_least_where_busy_links_slow_the_fastest_pipelines(monkeypatch, most):
    """The evaluator's seconds of a pipeline are raised to its links' before the fastest are kept: a bound takes the least."""
    question = on_one_cluster(6, 6, nodes=3)
    context = PlanningContext(question)
    classes = tuple(node_classes(context, shape()))
    listed = [tuple((0, layers) for _, layers in pipeline) for pipeline in pipelines(question, shape()) if len(pipeline) == 3]
    by_evaluator = [found.pipeline for found in candidates.priced(context, shape(), classes, listed, len(listed))]
    slowed = set(by_evaluator[:4])
    monkeypatch.setattr(PipelineEvaluation, "link_seconds", lambda _, pipeline: 1e9 if pipeline in slowed else 0.0)
    kept = candidates.priced(context, shape(), classes, listed, most)
    assert [found.pipeline for found in kept] == by_evaluator[4 : 4 + most]
    assert kept[0].seconds < 1e9


def test_estimates_of_unlike_shapes_are_evaluated_in_one_batch_as_one_by_one():
    context = PlanningContext(on_one_cluster(6, 6, nodes=3))
    shapes = [shape(), shape(microbatch_size=2), shape(schedule="gpipe")]
    found = [one for each in shapes for one in estimates(context, each, node_classes(context, each))]
    together = candidates.all_evaluated(found)
    assert [(one.shape, one.pipeline) for one in together] == [(one.shape, one.pipeline) for one in found]
    assert [one.seconds for one in together] == pytest.approx([one.evaluated().seconds for one in found], rel=1e-12)


def test_estimates_keep_their_seconds_where_the_evaluator_does_not_model_them(monkeypatch):
    context = PlanningContext(on_one_cluster(6, 6, nodes=3))
    first, other = estimates(context, shape(), node_classes(context, shape()))[:2]

    def seconds(pipelines):
        if any(pipeline == first.pipeline for _, pipeline in pipelines):
            raise NotModelled("no")
        return [7e9 for _ in pipelines]

    monkeypatch.setattr(candidates, "evaluated_together", seconds)
    assert [one.seconds for one in candidates.all_evaluated([first, other])] == [first.seconds, 7e9]
