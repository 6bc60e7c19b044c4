"""Alternatives to the best plan: distinct layouts that fit, near the best, in the order of their closed form."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holmes_sim import commands
from planner.costs.context import PlanningContext
from planner.placement.simulation import fits
from planner.request import Request, Wishes
from planner.search.alternatives import alternatives, layout_of
from sim.analytic.plan_costs import step_seconds
from sim.errors import Infeasible
from sim.plan.plan import Plan

WISHES = Wishes(recompute="none", schedule="1f1b", zero_stage=1, tp=2)


def request_of(wishes: Wishes = WISHES) -> Request:
    where = commands.load("holmes-infiniband-4")
    return Request(where, commands.workload_of(where), wishes)


@pytest.fixture(scope="module")
def found() -> list[Plan]:
    request = request_of()
    return alternatives(request, PlanningContext(request), 12)


def test_each_layout_has_one_plan_of_a_schedule(found: list[Plan]) -> None:
    keys = [(layout_of(plan.config, plan.config.pp), plan.config.schedule) for plan in found]
    assert len(set(keys)) == len(keys) == 12
    assert len({plan.config.pp for plan in found}) > 1
    assert len({plan.config.microbatch_size for plan in found}) > 1


def test_plans_obey_pins_and_fit_memory(found: list[Plan]) -> None:
    assert {(plan.config.tp, plan.config.schedule, plan.config.recompute) for plan in found} == {(2, "1f1b", "none")}
    assert all(fits(plan) for plan in found)


def test_the_first_plan_is_the_fastest_on_an_idle_network(found: list[Plan]) -> None:
    seconds = [step_seconds(plan) for plan in found]
    assert seconds[0] == pytest.approx(min(seconds))
    assert seconds == pytest.approx(sorted(seconds), rel=0.02), "the evaluator's order is nearly that of the closed form"


def test_only_near_plans_are_alternatives(found: list[Plan]) -> None:
    request = request_of()
    near = alternatives(request, PlanningContext(request), 12, near=1.05)
    seconds = [step_seconds(plan) for plan in near]
    assert 1 <= len(near) < len(found)
    assert max(seconds) <= 1.06 * min(seconds)


def test_what_is_not_accepted_is_left_out(found: list[Plan]) -> None:
    request = request_of()
    chosen = alternatives(request, PlanningContext(request), 3, accepts=lambda plan: plan.config.pp == 1)
    assert [plan.config.pp for plan in chosen] == [1] * len(chosen)
    assert chosen


def test_a_single_stage_has_no_virtual_stages() -> None:
    request = request_of(replace(WISHES, schedule=None, dp=16))
    plans = alternatives(request, PlanningContext(request), 12, accepts=lambda plan: plan.config.pp == 1)
    assert {plan.config.vpp for plan in plans} == {1}


def test_no_shape_is_infeasible() -> None:
    request = request_of(replace(WISHES, dp=7, zero_stage=3))
    with pytest.raises(Infeasible, match="no layout fits"):
        alternatives(request, PlanningContext(request), 3)
