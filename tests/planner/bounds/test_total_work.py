"""The total-work bound: no device ever waits."""

from __future__ import annotations

import math

import pytest
from hypothesis import given

from planner.bounds.total_work import Work, work_bound
from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes
from planner.placement.simulation import simulate_plan, step
from planner.request import Wishes
from planner.time_limit import TimeLimit
from tests.planner.builders import Drawn, drawn_plans, on_one_cluster, on_two_clusters, shape


def test_two_speeds_by_hand():
    """Devices of t and 2 t seconds for a layer: 1.5 / t layers a second, and 4 layers of 6 microbatches."""
    question = on_two_clusters(layers=4, batch=6, wishes=Wishes(recompute="none", microbatch_size=1))
    context = PlanningContext(question)
    fast, slow = (option.layer_seconds for option in node_classes(context, shape()))
    assert slow > 1.5 * fast
    expected = 24 / (1 / fast + 1 / slow)
    assert Work(context).bound(shape()) == pytest.approx(expected)
    assert work_bound(context) == pytest.approx(expected)


def test_after_the_time_limit_nothing_is_proved():
    context = PlanningContext(on_two_clusters(layers=4, batch=6))
    context.limit = TimeLimit(0.0)
    assert work_bound(context) == 0.0
    assert context.limit.reached


def test_the_bound_of_a_shape_has_no_dp_and_no_schedule():
    work = Work(PlanningContext(on_one_cluster(batch=12, nodes=3, devices=2)))
    assert work.bound(shape(dp=1)) == work.bound(shape(dp=6, schedule="gpipe", zero_stage=3))
    assert work.bound(shape(recompute="full")) > work.bound(shape())
    assert work.bound(shape(tp=4)) == math.inf


@given(drawn_plans())
def test_no_simulated_step_is_shorter(drawn: Drawn):
    context = PlanningContext(drawn.request)
    seconds = step(simulate_plan(drawn.plan)) * (1 + 1e-9)
    assert work_bound(context) <= Work(context).bound(drawn.base) <= seconds
