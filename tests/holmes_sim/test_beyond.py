"""What is told of faster plans that few or no frameworks run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holmes_sim import beyond, commands, requirements
from holmes_sim.beyond import Beyond, BeyondSearch
from planner.costs.context import PlanningContext
from planner.placement.ranks import build
from planner.placement.simulation import simulate_plan, step
from planner.request import Request, Wishes
from planner.space.shape import Shape
from sim.plan.plan import Plan

HYBRID = commands.load("holmes-hybrid-4")
ANY = requirements.request(HYBRID, commands.workload_of(HYBRID), time_limit=20.0)


@pytest.fixture(scope="module")
def slow() -> Plan:
    """A plan with 1F1B on both clusters."""
    shape = Shape(1, 16, 2, "none", "1f1b", 1, 1)
    return simulate_plan(build(ANY, shape, (("ib", 15), ("roce", 15)), "by hand"))


def searched(request: Request, found: Plan, seconds: float = 200.0, wanted: bool = True) -> Beyond | None:
    with BeyondSearch(request, wanted) as search:
        return search.compared(found, seconds, PlanningContext(request))


@pytest.fixture(scope="module")
def faster(slow) -> Beyond:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beyond, "has_free_core", lambda: False)
        found = searched(ANY, slow)
    assert found is not None
    return found


def test_it_is_faster_and_no_framework_runs_it(slow, faster):
    assert faster.plan.config.schedule == "zb-h2"
    assert faster.plan.config.tied_shards
    assert faster.saved == pytest.approx(1 - step(faster.plan) / step(slow))
    assert faster.saved > 0.25
    assert faster.able == ("holmes-sim run",)
    assert str(faster) == (
        "Faster, but few or no frameworks run it: zb-h2 with the tied embedding summed by shards takes at most "
        f"{step(faster.plan):.4g} s, {faster.saved:.0%} less time; it runs with `holmes-sim run`. "
        "`--for none` searches such plans."
    )


def test_the_framework_that_runs_it_is_named_for_the_search(faster):
    named = replace(faster, able=("torchtitan", "holmes-sim run"))
    assert str(named).endswith("it runs with torchtitan and `holmes-sim run`. `--for torchtitan` searches such plans.")


def test_a_plan_of_the_same_schedule_is_called_another(slow, faster, monkeypatch):
    quick = replace(faster.plan, config=replace(faster.plan.config, schedule=slow.config.schedule, tied_shards=False))
    monkeypatch.setattr(beyond, "_fastest", lambda *given: quick)
    monkeypatch.setattr(beyond, "has_free_core", lambda: False)
    told = f"Faster, but few or no frameworks run it: another plan of schedule {slow.config.schedule} takes at most "
    assert str(searched(ANY, slow)).startswith(told)


def test_a_second_process_finds_the_same_plan(slow, faster, monkeypatch):
    monkeypatch.setattr(beyond, "has_free_core", lambda: True)
    found = searched(replace(ANY, wishes=Wishes(tp=1, dp=16, microbatch_size=2)), slow)
    assert found is not None
    assert step(found.plan) == step(faster.plan)
    assert str(found) == str(faster)


def test_nothing_is_told_where_nothing_is_gained_or_asked(slow, faster, monkeypatch):
    monkeypatch.setattr(beyond, "_fastest", lambda *given: faster.plan)
    monkeypatch.setattr(beyond, "has_free_core", lambda: False)
    assert searched(ANY, slow) == faster
    assert searched(ANY, faster.plan) is None
    assert searched(replace(ANY, target=None), slow) is None
    assert searched(ANY, slow, seconds=0.0) is None
    assert searched(ANY, slow, wanted=False) is None
