"""The search of mixed stages of layers that differ: the same in a second process and in this one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from planner.bounds.unlike_work import UnlikeWork
from planner.costs.context import PlanningContext
from planner.costs.unlike_layers import UnlikeCosts
from planner.placement.simulation import simulate_plan, step
from planner.request import Request
from planner.search import unlike_mixed_proof
from planner.search.fastest_plan import FastestPlan
from planner.search.mixed import is_mixed
from planner.search.unlike_layers import UnlikeSearch
from planner.search.unlike_mixed_proof import UnlikeMixedProof
from planner.search.unlike_placements import PlacementBounds, placements
from planner.time_limit import TimeLimit
from sim.plan.plan import Plan
from tests.planner.bounds.test_unlike_placed import wanted_on
from tests.planner.targets import alike_replicas
from tests.planner.unlike import question

QUESTION = replace(wanted_on(1, 3), target=alike_replicas())


def mixed_plans(wanted: Request) -> list[Plan]:
    """The best cut of each placement, simulated."""
    costs = UnlikeCosts(PlanningContext(wanted))
    bounds, work = PlacementBounds(costs), UnlikeWork(costs.context, costs.layers)
    every = ((one, bounds.of(one, low, math.inf)) for low, one in placements(wanted, work))
    return [simulate_plan(bounds.plan(one, cut, wanted)) for one, cut in every]


def as_slow(plan: Plan, seconds: float) -> Plan:
    """A plan as if it took so long."""
    assert plan.prediction is not None
    return plan.annotated(prediction=replace(plan.prediction, step_s=seconds))


@contextmanager
def begun(
    wanted: Request, first: Plan | None, beside: bool, seconds: float = math.inf
) -> Iterator[tuple[UnlikeMixedProof, FastestPlan]]:
    """A search that has begun below a first plan, in a second process or not."""
    search = FastestPlan(wanted, PlanningContext(wanted), first, TimeLimit(seconds))
    costs = UnlikeCosts(search.context)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unlike_mixed_proof, "has_free_core", lambda: beside)
        patch.setattr(unlike_mixed_proof, "BESIDE_FROM", 1)
        with UnlikeMixedProof(costs, UnlikeWork(search.context, costs.layers)) as proof:
            proof.begin(search)
            yield proof, search


def test_a_second_process_finds_what_this_one_finds() -> None:
    slowest = max(mixed_plans(QUESTION), key=step)
    first, found = as_slow(slowest, 2 * step(slowest)), []
    for beside in (True, False):
        with begun(QUESTION, first, beside) as (proof, search):
            found.append((proof.collect(search), search.cutoff))
            assert search.best is not None and is_mixed(search.best) and search.best.workload is QUESTION.workload
            assert not search.limit.reached
    assert found[0] == found[1]
    assert found[0][1] < step(slowest)


def test_nothing_faster_than_the_first_plan_leaves_it_and_a_bound_that_is_worth_nothing_more() -> None:
    """No placement has a plan below the deadline, so that the bound is the deadline."""
    first = as_slow(mixed_plans(QUESTION)[0], 1e-9)
    with begun(QUESTION, first, False) as (proof, search):
        bound = proof.collect(search)
        assert search.best is first
        assert bound.seconds >= search.cutoff


def test_the_time_limit_leaves_the_bound_of_total_work_and_the_holder_is_named() -> None:
    with begun(QUESTION, None, False, seconds=0.0) as (proof, search):
        bound = proof.collect(search)
        work = UnlikeWork(search.context, UnlikeCosts(search.context).layers)
        assert bound.seconds == min(seconds for seconds, _ in placements(QUESTION, work))
        assert search.limit.reached and search.best is None
        assert bound.words.startswith("plans with mixed stages, tp 1, pp ")


def test_one_cluster_has_no_mixed_stages() -> None:
    with begun(question(), None, True) as (proof, search):
        assert proof.collect(search).seconds == math.inf


def test_the_search_of_whole_stages_has_its_bound_and_its_plans() -> None:
    search = UnlikeSearch(QUESTION, PlanningContext(QUESTION), None, TimeLimit(math.inf))
    search.run()
    assert search.best is not None
    assert step(search.best) <= min(step(plan) for plan in mixed_plans(QUESTION))
    assert 0.92 * search.cutoff <= search.mixed.seconds
