"""The search for unlike pipelines beside that of a plan of alike replicas."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from holmes_sim import exporters, unlike_replicas, unlike_search
from holmes_sim.beyond import BeyondSearch
from holmes_sim.unlike_replicas import UnlikeReplicas
from holmes_sim.unlike_search import UnlikeSearch, against
from planner.placement.ranks import build
from planner.placement.simulation import simulate_plan, step
from planner.request import Request
from sim.plan.certificate import Certificate
from sim.plan.plan import Plan
from tests.holmes_sim.test_unlike_replicas import asked
from tests.more import more
from tests.planner.builders import shape

REQUEST = replace(asked(), time_limit=100.0)


@pytest.fixture(scope="module")
def first() -> Plan:
    """Two replicas of one stage on the fast nodes, whereas the slow one is idle."""
    return simulate_plan(build(REQUEST, shape(1, 2), (("a", 3),), "by hand"))


@contextmanager
def begun(first: Plan, beside: bool, request: Request = REQUEST) -> Iterator[UnlikeSearch]:
    """A search that knows its first plan, with a core for a second process or without."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unlike_search, "has_free_core", lambda: beside)
        with UnlikeSearch(request, True, BeyondSearch(request, False)) as search:
            search.first_plan(first)
            yield search


@pytest.fixture(scope="module")
def alone(first: Plan) -> UnlikeReplicas:
    """What is found without a second process."""
    with begun(first, False) as search:
        known = search.compared(first, None, 100.0, lambda text: None)
    assert known is not None
    return known


@more
def test_a_second_process_finds_the_same(first, alone):
    with begun(first, True) as search:
        known = search.compared(first, None, 100.0, lambda text: None)
    assert known is not None
    assert known.plan is not None
    assert known.plan.pipelines == alone.plan.pipelines
    assert str(known) == str(alone)


def test_time_is_left_for_it_only_where_it_follows_the_plan(first):
    with begun(first, True) as beside, begun(first, False) as after:
        assert (beside.spared(first), after.spared(first)) == (0.0, 30.0)


def test_it_begins_by_itself_once_the_first_plan_is_known(first):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unlike_search, "has_free_core", lambda: True)
        with UnlikeSearch(REQUEST, True, BeyondSearch(REQUEST, False)) as search:
            told = list[str]()
            report = search.polled(told.append)
            report("before")
            assert search._second is None
            search.first_plan(first)
            report("after")
            assert search._second is not None
            process = search._second.process
    assert told == ["before", "after"]
    assert process is not None
    assert process.returncode is not None  # it is ended with the search


def proved(plan: Plan, step_s: float, bound_s: float) -> Plan:
    """A plan with another predicted step and a certificate."""
    assert plan.prediction is not None
    known = Certificate("feasible", step_s, bound_s, 1 - bound_s / step_s, "by hand", time_limit_reached=False)
    return plan.annotated(prediction=replace(plan.prediction, step_s=step_s), certificate=known)


def test_a_plan_that_is_no_faster_in_the_end_is_not_told(alone, first):
    assert alone.plan is not None
    close = alone.step * (1 + unlike_replicas.LEAST_GAIN / 2)
    kept = replace(alone, alike_bound_s=0.1)
    assert against(alone, proved(first, close, 0.1), math.inf) == replace(kept, alike_s=close, plan=None)
    assert against(alone, proved(first, 2 * close, 0.1), close).plan is None
    assert against(alone, proved(first, 2 * close, 0.1), math.inf) == replace(kept, alike_s=2 * close)


@pytest.mark.parametrize(("alike_bound", "both"), [(0.5, 0.5), (2.0, 1.0)])
def test_one_bound_for_both_kinds_of_plans_is_the_lower_one(alone, first, alike_bound, both):
    """Of a searched space without plans below 0.5 or 2 times the bound of unlike pipelines, and the gap of the fastest plan."""
    known = against(alone, proved(first, 100 * alone.step, alike_bound * alone.bound_s), math.inf)
    assert known.both.lower_bound_s == pytest.approx(both * alone.bound_s)
    assert known.both.gap == pytest.approx(1 - both * alone.bound_s / alone.step)
    said = "no searched plan of alike replicas, and none of unlike pipelines, takes less than"
    assert said in str(known) and said in known.explained
    assert known.facts()["both"] == known.both.facts()


def test_nothing_is_told_of_requests_with_pins_or_another_objective(first):
    with begun(first, True, replace(REQUEST, target=exporters.target("megatron"))) as search:
        assert search.compared(first, None, 100.0, lambda text: None) is None
    with UnlikeSearch(REQUEST, False, BeyondSearch(REQUEST, False)) as unwanted:
        assert unwanted.first_plan(first) == 0.0
        assert unwanted.compared(first, None, 100.0, lambda text: None) is None


def test_the_bound_is_told_where_the_time_is_over(first, alone):
    with begun(first, True) as search:
        known = search.compared(first, None, 1e-3, lambda text: None)
    assert known is not None
    assert (known.plan, known.cut_off, known.bound_s) == (None, True, alone.bound_s)
    assert known.alike_s == step(first)
