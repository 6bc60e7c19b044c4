"""Strategies planned beside the search: the same answers from another process as from this one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.costs.context import PlanningContext
from planner.request import Request, Wishes
from planner.search import beside
from planner.search.beside import Beside
from planner.strategies.certified import QUICK, asked
from sim.errors import Infeasible
from sim.plan.plan import Plan
from tests.planner.builders import random_request

REQUEST = random_request(4)


@pytest.fixture
def in_a_process(monkeypatch):
    """A process is started for fleets of any size, as though this machine had an idle core."""
    monkeypatch.setattr(beside, "PARALLEL_FROM", 1)
    monkeypatch.setattr(beside, "has_free_core", lambda: True)


def here(request: Request, name: str) -> Plan | str:
    """The answer of a strategy, planned in this process: its plan, or the text of its error."""
    try:
        return asked(name, PlanningContext(request))
    except Infeasible as error:
        return str(error)


def known(context: PlanningContext, name: str) -> Plan | str:
    """What the context knows of a strategy; planning it here is an error."""

    def fail() -> Plan:
        raise AssertionError(f"{name} is not known")

    try:
        return context.answer(name, fail)
    except Infeasible as error:
        return str(error)


@pytest.mark.parametrize("request_", [REQUEST, replace(REQUEST, wishes=Wishes(tp=64))], ids=["plans", "none"])
def test_a_process_gives_the_answers_that_planning_here_gives(in_a_process, request_):
    context = PlanningContext(request_, beside=QUICK)
    with Beside(context, asked) as side:
        side.plan()
        assert not any(context.answers(name) for name in QUICK), "nothing is planned here"
        side.collect()
    for name in QUICK:
        assert known(context, name) == here(request_, name)
    assert isinstance(known(context, "megatron"), Plan) == (request_ is REQUEST)


def test_a_plan_of_a_process_has_the_topology_of_the_request(in_a_process):
    context = PlanningContext(REQUEST, beside=("megatron",))
    with Beside(context, asked) as side:
        side.collect()
    found = known(context, "megatron")
    assert isinstance(found, Plan)
    assert found.topology is REQUEST.topology and found.workload is REQUEST.workload


def test_a_small_fleet_is_planned_here(monkeypatch):
    monkeypatch.setattr(beside, "has_free_core", lambda: True)
    monkeypatch.setattr(beside, "PARALLEL_FROM", REQUEST.topology.fleet.devices + 1)
    context = PlanningContext(REQUEST, beside=QUICK)
    with Beside(context, asked) as side:
        side.plan()
        assert all(context.answers(name) for name in QUICK)


def test_what_is_not_ready_at_the_time_limit_is_left_out(in_a_process):
    context = PlanningContext(replace(REQUEST, time_limit=0.0), beside=QUICK)
    with Beside(context, asked) as side:
        side.plan()
        side.collect()
    assert not any(context.answers(name) for name in QUICK) and context.limit.reached


def test_a_killed_process_is_replaced_by_this_one(in_a_process):
    context = PlanningContext(REQUEST, beside=QUICK)
    with Beside(context, asked) as side:
        assert side._second is not None and side._second.process is not None
        side._second.process.kill()
        side.collect()
    assert all(context.answers(name) for name in QUICK)


def test_the_process_ends_with_the_search(in_a_process):
    with Beside(PlanningContext(REQUEST, beside=QUICK), asked) as side:
        assert side._second is not None and side._second.process is not None
    assert side._second.process.returncode is not None
