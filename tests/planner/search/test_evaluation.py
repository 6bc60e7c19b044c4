"""Step times of pipelines are those of their plans."""

from __future__ import annotations

import pytest
from hypothesis import given

from planner.costs.context import PlanningContext
from planner.costs.node_classes import under
from planner.placement.simulation import step
from planner.search.evaluation import PipelineEvaluation, roles
from planner.space.shapes import overlaps
from sim.analytic.evaluator import evaluate
from sim.engine.engine import simulate
from sim.hardware.cluster import Trunk
from tests import builders as make
from tests.planner.builders import Drawn, drawn_plans, on_two_clusters, request, shape
from tests.planner.search.searches import candidate, evaluation, simulated


def test_roles_of_stages():
    assert [roles(pp) for pp in (1, 2, 4)] == [["only"], ["first", "last"], ["first", "middle", "middle", "last"]]


@given(drawn_plans())
def test_the_seconds_of_a_pipeline_are_those_of_its_plan(drawn: Drawn):
    """By the same evaluator, from the stages' classes in place of the plan's devices.

    Where dp does not divide the batch, the first replica is evaluated, which has most microbatches; others may have costlier
    positions. As bounds, seconds are less, because such replicas need not keep step; otherwise they are assumed to. Where
    gradients of several stages, or messages there and back, share a link, seconds may be more, up to those of the
    simulation."""
    context = PlanningContext(drawn.request)
    found = candidate(context, drawn.shape, drawn.stages)
    least = candidate(context, drawn.shape, drawn.stages, least=True).seconds
    (seconds,) = evaluate([drawn.plan])
    expected = max(float(seconds), found.link_seconds)
    if any(context.gradients.shared(cluster, drawn.shape).links for cluster in drawn.request.clusters()):
        assert least <= max(simulate(drawn.plan).step_s, found.link_seconds) * (1 + 1e-9)
        assert found.seconds >= least
    elif drawn.shape.divides(drawn.request.workload):
        assert found.seconds == least
        assert least == pytest.approx(expected, rel=1e-9) or expected < least <= simulate(drawn.plan).step_s * (1 + 1e-9)
    else:
        assert least <= expected * (1 + 1e-9)
        assert found.seconds >= least
    assert found.stages == drawn.stages
    assert found.shape == drawn.shape


@given(drawn_plans())
def test_without_gathers_no_pipeline_takes_longer_than_with_them_at_either_time(drawn: Drawn):
    context = PlanningContext(drawn.request)
    found = candidate(context, drawn.shape, drawn.stages, least=True)
    ((least, _),) = found.evaluation.evaluated([found.pipeline], gathers=False)
    for one in overlaps(drawn.shape):
        classes = under(context, one, found.evaluation.classes)
        ((seconds, _),) = PipelineEvaluation(context, one, classes, least=True).evaluated([found.pipeline])
        assert least <= seconds * (1 + 1e-9)


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


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zb-h1", "interleaved"])
@pytest.mark.parametrize("bandwidth", [2e5, 2e6])
@pytest.mark.parametrize("batch", [18, 21])
def test_replicas_that_share_a_node_at_every_stage_are_no_bound_above_the_step(schedule, bandwidth, batch):
    """Stages of six replicas on nodes of four: the first two (with 21 sequences, the first two of three that have four) are
    always on one node, and their messages share its NIC."""
    if schedule == "interleaved" and batch == 21:
        return
    nics, inside = (make.nic("ethernet", bandwidth),), make.wire(bandwidth=1e9)
    spec = make.device(speed=1e9, memory_bandwidth=1e12)
    clusters = [make.cluster(name, 5, 4, nics, intra_node=inside, spec=spec) for name in "ab"]
    question = request(make.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 1e7, 1e-4),)), make.model(8), batch)
    one = shape(dp=6, schedule=schedule, vpp=2 if schedule == "interleaved" else 1)
    stages = (("a", 3), ("a", 2), ("b", 3))
    context = PlanningContext(question)
    assert context.messages.together(question.clusters(), one) == 2
    least = candidate(context, one, stages, least=True)
    assert least.seconds <= step(simulated(question, one, *stages)) * (1 + 1e-9)
    ahead, _, _ = least.evaluation.messages((0, 0, 1))
    assert ahead[0] == pytest.approx(2 * 64 * 96 * 2 / bandwidth)


def test_replicas_that_share_nics_unevenly_are_no_bound_above_the_step():
    """Of three devices with two NICs, the third replica sends alone and runs ahead, so that its messages find the trunk free
    later on: with all three at once, the bound was 7.0 % above the step."""
    spec, nics = make.device(speed=1e11), (make.nic("ethernet", 1e8, 2),)
    clusters = [make.cluster(name, nodes, 3, nics, spec) for name, nodes in (("a", 1), ("b", 2))]
    trunks = (Trunk(("a", "b"), "ethernet", 5e7, 0.0),)
    question, one = request(make.fleet(*clusters, trunks=trunks), make.model(5, 256), 12), shape(dp=3)
    context, stages = PlanningContext(question), (("b", 2), ("b", 2), ("a", 1))
    simulation = step(simulated(question, one, *stages))
    assert round(candidate(context, one, stages).seconds / simulation - 1, 3) == 0.070
    assert candidate(context, one, stages, least=True).seconds <= simulation
