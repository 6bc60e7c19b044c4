"""The search for unlike pipelines on small fleets."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from planner.bounds.unlike_pipelines import least_step
from planner.costs.context import PlanningContext
from planner.pipelines.assembly import simulated
from planner.pipelines.search import best
from planner.placement.simulation import fits
from planner.time_limit import TimeLimit
from sim.engine.engine import simulate
from sim.workload.adapter import Adapter
from tests.more import more
from tests.planner.pipelines.fleets import two_kinds

ASKED = two_kinds(batch=16)


@pytest.fixture(scope="module")
def found():
    return best(ASKED, 1.0)


def test_the_plan_trains_the_batch_on_all_nodes(found):
    plan = found.plan
    assert plan.workload.global_batch_size == 16
    assert plan.nodes == 3
    assert all(map(fits, plan.pipelines))
    again = simulated(plan)
    assert again is not None
    assert again[0].prediction == plan.prediction
    assert found.step_s == plan.prediction.step_s


def test_it_is_found_below_its_deadline_only(found):
    assert best(ASKED, found.step_s * 0.999) is None


def test_slow_networks_leave_no_room_for_the_gradients(found):
    """The gradients of a replica need more seconds than the deadline has."""
    slow = two_kinds(rate=1e3)
    assert best(slow, found.step_s * 4) is None


def test_nothing_is_searched_without_parts_or_time():
    assert best(two_kinds((1 << 199, 1 << 199)), 1.0) is None
    assert best(ASKED, 1.0, TimeLimit(0.0)) is None


@more
def test_adapters_train_on_slow_networks():
    """On NICs of 1e6 bytes a second, over which gradients of all weights take ten times as long."""
    slow, adapted = (two_kinds(rate=1e6, adapter=adapter) for adapter in (None, Adapter(2)))
    faster = best(adapted, 1.0)
    assert best(slow, 10 * faster.step_s) is None
    assert least_step(PlanningContext(adapted)) <= faster.step_s
    assert faster.step_s == pytest.approx(simulate(faster.plan).step_s)


def test_unlike_layers_are_left_out():
    """Windows in every second layer."""
    model = replace(ASKED.workload.model, sliding_window=64, sliding_window_every=2)
    assert best(replace(ASKED, workload=replace(ASKED.workload, model=model)), math.inf) is None
