"""Step times of pipelines are those of their plans."""

from __future__ import annotations

import pytest
from hypothesis import given

from planner.costs.context import PlanningContext
from planner.search.evaluation import roles
from sim.analytic.evaluator import evaluate
from sim.engine.engine import simulate
from tests.planner.builders import Drawn, drawn_plans, on_two_clusters, shape
from tests.planner.search.searches import candidate, evaluation


def test_roles_of_stages():
    assert [roles(pp) for pp in (1, 2, 4)] == [["only"], ["first", "last"], ["first", "middle", "middle", "last"]]


@given(drawn_plans())
def test_the_seconds_of_a_pipeline_are_those_of_its_plan(drawn: Drawn):
    """By the same evaluator, from the stages' classes in place of the plan's devices.

    Where dp does not divide the batch, the first replica is evaluated, which has most microbatches; others may have costlier
    positions. As bounds, seconds are less, because such replicas need not keep step; otherwise they are assumed to. Where
    gradients of several stages share a link, seconds may be more, up to those of the simulation."""
    context = PlanningContext(drawn.request)
    found = candidate(context, drawn.shape, drawn.stages)
    least = candidate(context, drawn.shape, drawn.stages, least=True).seconds
    (seconds,) = evaluate([drawn.plan])
    expected = max(float(seconds), found.link_seconds)
    if any(context.gradients.shared(cluster, drawn.shape).links for cluster in drawn.request.clusters()):
        assert least <= max(simulate(drawn.plan).step_s, found.link_seconds) * (1 + 1e-9)
        assert found.seconds >= least
    elif drawn.shape.divides(drawn.request.workload):
        assert found.seconds == least == pytest.approx(expected, rel=1e-9)
    else:
        assert least <= expected * (1 + 1e-9)
        assert found.seconds >= least
    assert found.stages == drawn.stages
    assert found.shape == drawn.shape


def test_pipelines_are_sorted_by_their_seconds_whatever_their_length():
    of = evaluation(on_two_clusters(layers=6, batch=12), shape())
    pipelines = [((0, 1), (1, 5)), ((0, 4), (1, 2)), ((0, 6),), ((0, 3), (1, 3)), ((1, 6),)]
    found = of.evaluated(pipelines)
    assert sorted(pipelines) == sorted(pipeline for _, pipeline in found)
    assert [seconds for seconds, _ in found] == sorted(seconds for seconds, _ in found)
    assert found[0][1] == ((0, 4), (1, 2)), "devices of 2 and 1 GFLOP/s"
    for seconds, pipeline in found:
        assert of.evaluated([pipeline]) == [(pytest.approx(seconds, rel=1e-12), pipeline)]


def test_a_pipeline_of_one_stage_sends_no_messages():
    of = evaluation(on_two_clusters(), shape())
    assert of.messages((0,))[:2] == ([0.0], [0.0])
    ahead, back, _ = of.messages((0, 1))
    assert ahead == [pytest.approx(64 * 96 * 2 / 1e6), 0.0]
    assert back == [0.0, pytest.approx(64 * 96 * 2 / 1e6)]
    assert of.link_seconds(((0, 4),)) == 0.0
