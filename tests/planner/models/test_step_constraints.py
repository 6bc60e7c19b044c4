"""Bounds of the stage programme on the step of given pipelines: never above the closed form of the plan."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from planner.models.pipeline_constraints import require_pipeline
from planner.models.step_constraints import StepConstraints
from planner.placement.ranks import build
from planner.placement.simulation import fits
from planner.request import Request
from planner.space.shape import Shape
from sim.analytic import plan_costs
from tests import builders as make
from tests.more import after
from tests.planner.builders import Stages, on_one_cluster, on_two_clusters, pipelines, random_request, shape
from tests.planner.models.problem import fix, solved, variables


def bound(question: Request, one: Shape, pipeline: Stages) -> float:
    """The least step of a given pipeline in the stage programme; infinite where it is no solution."""
    context, stages = variables(question, one)
    require_pipeline(stages, (1, None))
    StepConstraints(context, stages).add()
    fix(stages, pipeline)
    solution = solved(stages.programme)
    return solution.objective * stages.unit if solution is not None else math.inf


def test_an_even_pipeline_by_hand():
    """Two stages of two layers, m = 6: the first microbatch arrives, the last stage computes six, its last gradient is sent as
    the last of its slots, and the first stage ends."""
    question = on_one_cluster(layers=4, batch=6, nodes=2, nics=(make.nic("ethernet", 1e7),))
    _, stages = variables(question, shape())
    (option,) = stages.order
    message = 64 * 96 * 2 / 1e7
    assert option.message == pytest.approx(message)
    first, last = option.cost("first", 2), option.cost("last", 2)
    way_back = first.forward + message + 6 * last.cycle + first.backward + first.tail(option.config)
    assert last.cycle == pytest.approx(last.forward + last.backward + message)
    assert bound(question, shape(), (("c", 2), ("c", 2))) == pytest.approx(way_back, rel=1e-5)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zb-h1", "zb-h2"])
def test_no_bound_is_above_the_closed_form_of_its_plan(schedule):
    """All pipelines on two clusters joined by a slow trunk, in one order; the bound is within 30 % of it."""
    question, one, ratios = on_two_clusters(layers=5, batch=4, nodes=2), shape(schedule=schedule), []
    for pipeline in pipelines(question, one):
        names = [name for name, _ in pipeline]
        if len(pipeline) > 1 and names == sorted(names):
            closed = plan_costs.step_seconds(build(question, one, pipeline, "by hand"))
            ratios.append(bound(question, one, pipeline) / closed)
    assert len(ratios) > 20
    assert max(ratios) <= 1 + 1e-6
    assert min(ratios) > 0.7


def growing_pipelines(question: Request) -> Iterator[tuple[Stages, float]]:
    """Pipelines along the clusters of the topology whose middle stages grow, and the closed form of each that fits."""
    order = [cluster.name for cluster in question.clusters()]
    for pipeline in pipelines(question, shape()):
        positions = [order.index(name) for name, _ in pipeline]
        middle = [layers for _, layers in pipeline[1:-1]]
        if len(pipeline) > 1 and positions == sorted(positions) and middle == sorted(middle):
            plan = build(question, shape(), pipeline, "by hand")
            if fits(plan):
                yield pipeline, plan_costs.step_seconds(plan)


def is_behind_a_border(pipeline: Stages) -> bool:
    """Whether the last stage is the only one of its cluster."""
    return pipeline[-2][0] != pipeline[-1][0]


@pytest.mark.parametrize("seed", after(5, [1, 4, 5, 12, 22, 13, 14, 18]))
def test_no_bound_is_above_the_closed_form_on_random_fleets(seed):
    """With tied embeddings and different NICs."""
    question, found = random_request(seed), 0
    for pipeline, closed in growing_pipelines(question):
        if not is_behind_a_border(pipeline):
            assert bound(question, shape(), pipeline) <= closed * (1 + 1e-6)
            found += 1
    assert found


@pytest.mark.parametrize("seed", [4, 12, 22])
def test_no_bound_is_above_the_closed_form_where_the_last_stage_is_alone_behind_a_border(seed):
    question = random_request(seed)
    for pipeline, closed in growing_pipelines(question):
        if is_behind_a_border(pipeline):
            assert bound(question, shape(), pipeline) <= closed * (1 + 1e-6)
