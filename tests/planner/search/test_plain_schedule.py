"""A plan of one stage is shown under 1F1B, whose passes are the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.costs.context import PlanningContext
from planner.placement.ranks import build
from planner.placement.simulation import step
from planner.request import Request, Wishes
from planner.search.plain_schedule import with_plain_schedule
from planner.strategies import certified
from sim.plan.plan import Plan
from tests.planner.builders import on_one_cluster, shape
from tests.planner.targets import target

REQUEST = on_one_cluster(layers=4, batch=8, nodes=2, devices=2)


def simulated(request: Request, schedule: str, stages: int) -> tuple[PlanningContext, Plan]:
    context = PlanningContext(request)
    pipeline = (("c", 4 // stages),) * stages
    return context, context.timelines.simulate(build(request, shape(schedule=schedule), pipeline, "by hand"))


@pytest.mark.parametrize("schedule", ["zb-h1", "zb-h2"])
def test_one_stage_has_the_plain_schedule_and_the_same_step(schedule: str) -> None:
    context, plan = simulated(REQUEST, schedule, 1)
    found = with_plain_schedule(REQUEST, context, plan)
    assert (plan.config.schedule, found.config.schedule) == (schedule, "1f1b")
    assert step(found) == pytest.approx(step(plan), rel=1e-12)
    assert found.stages == plan.stages and found.placement == plan.placement


def test_several_stages_and_pinned_schedules_stay() -> None:
    context, plan = simulated(REQUEST, "zb-h1", 2)
    assert with_plain_schedule(REQUEST, context, plan) is plan
    pinned = replace(REQUEST, wishes=Wishes(schedule="zb-h1"))
    context, plan = simulated(pinned, "zb-h1", 1)
    assert with_plain_schedule(pinned, context, plan) is plan


def test_a_schedule_that_the_target_refuses_is_not_taken() -> None:
    only = replace(target(), unsupported_layout=lambda config, _: iter(["schedule: never"] * (config.schedule == "1f1b")))
    context, plan = simulated(REQUEST, "zb-h1", 1)
    assert with_plain_schedule(replace(REQUEST, target=only), context, plan) is plan


def test_the_search_returns_the_plain_schedule() -> None:
    """There the step of zb-h1 is less by rounding."""
    request = replace(REQUEST, wishes=Wishes(tp=1, pp=1, vpp=1, microbatch_size=1))
    assert certified.plan(request, PlanningContext(request)).config.schedule == "1f1b"
