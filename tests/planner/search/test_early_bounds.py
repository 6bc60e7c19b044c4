"""Bounds of large fleets in a second process, as if small ones were large."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from planner.bounds.mixed_deadline import MixedBound
from planner.costs.context import PlanningContext
from planner.placement.simulation import step
from planner.request import Request
from planner.search import early_bounds
from planner.search.early_bounds import Bounding, EarlyBounds, bounds_below, higher, is_worth_more
from planner.search.incumbent import Incumbent
from planner.space.shapes import searched
from planner.strategies import certified
from planner.time_limit import TimeLimit
from sim.plan.plan import Plan
from tests.planner.builders import on_one_cluster, random_request
from tests.planner.search.searches import incumbent
from tests.planner.search.test_mixed_exhaust import of_step, steps_of_all
from tests.planner.targets import alike_replicas

QUESTION = replace(random_request(7), target=alike_replicas())


@pytest.fixture(scope="module")
def draft() -> Plan:
    """Some plan that fits, as if it took twice as long as the fastest one with mixed stages."""
    return of_step(QUESTION, 2 * min(steps_of_all(QUESTION)))


@contextmanager
def begun(
    question: Request, draft: Plan | None, beside: bool = True, least: int = 1
) -> Iterator[tuple[EarlyBounds, Incumbent]]:
    kept = incumbent(question)
    kept.draft, kept.limit = draft, TimeLimit(math.inf)
    with pytest.MonkeyPatch.context() as patch, EarlyBounds(kept.context, searched(question)) as early:
        patch.setattr(early_bounds, "has_free_core", lambda: beside)
        patch.setattr(early_bounds, "EARLY_FROM", least)
        early.begin(kept)
        yield early, kept


def test_a_second_process_bounds_both_kinds_of_plans(draft):
    with begun(QUESTION, draft) as (early, kept):
        assert early.has_begun
        kept.keep(draft)
        found = early.collect(kept)
    assert found == bounds_below(PlanningContext(QUESTION), QUESTION, tuple(searched(QUESTION)), step(draft))
    assert found is not None and not found.cut_off and not kept.limit.reached
    best = step(certified.plan(QUESTION, PlanningContext(QUESTION)))
    assert 0 < found.whole <= found.mixed.seconds <= min(steps_of_all(QUESTION)) * (1 + 1e-9)
    assert found.whole <= best * (1 + 1e-9)


def test_bounds_are_at_most_the_best_step(draft):
    with begun(QUESTION, draft) as (early, kept):
        bound = bounds_below(PlanningContext(QUESTION), QUESTION, (), step(draft)).mixed.seconds
        kept.keep(of_step(QUESTION, bound / 2))
        found = early.collect(kept)
    assert found is not None and found.mixed.seconds == pytest.approx(bound / 2)


def test_without_an_idle_core_the_bounds_come_after_the_first_plan(draft):
    """They are the same. Of 100 s, the first plan leaves 20 for them."""
    with begun(QUESTION, draft, beside=False) as (early, kept):
        assert early.has_begun
        kept.keep(draft)
        early.after_plan(kept)
        found = early.collect(kept)
    assert found == bounds_below(PlanningContext(QUESTION), QUESTION, tuple(searched(QUESTION)), step(draft))
    with begun(replace(QUESTION, time_limit=100.0), draft, beside=False) as (early, kept):
        kept.limit = TimeLimit(10.0)
        early.begin(kept)
        assert -10.5 < kept.limit.seconds_left < -9.5
        early.after_plan(kept)
        assert kept.limit.seconds_left > 9 and early.collect(kept) is None, "there is no plan yet"


def test_nothing_is_begun_on_small_fleets_or_without_a_draft(draft):
    without = (QUESTION, draft, True, 2_049), (QUESTION, None, True, 1), (QUESTION, None, False, 1)
    for question, one, beside, least in (*without, (on_one_cluster(), draft, True, 1)):
        with begun(question, one, beside, least) as (early, kept):
            assert not early.has_begun and early.collect(kept) is None


@pytest.mark.parametrize("seed", [0, 1, 3, 4])
def test_a_bound_without_simulation_is_no_higher_than_the_fastest_plan(seed):
    """Pipelines of one stage are not ruled out by a simulation that nobody keeps."""
    question = random_request(seed)
    best = step(certified.plan(question, PlanningContext(question)))
    context = PlanningContext(question)
    kept = Bounding(question, context, early_bounds.UNSEARCHED, context.limit, below=2 * best)
    proof = early_bounds.Proof(kept, early_bounds.Improvement(kept))
    left = proof.run(list(searched(question)))
    assert 0 < min([*left, *proof.settled]) <= best * (1 + 1e-9)
    assert not context.simulated and kept.best is None


def test_the_higher_bound_of_plans_with_mixed_stages_counts():
    low, high = MixedBound(1.0), MixedBound(2.0)
    assert higher(low, high) is high and higher(high, low) is high
    assert higher(None, low) is low and higher(None, None) is None


@pytest.mark.parametrize(("share", "seconds", "worth"), [(0.9, math.inf, True), (1.0, math.inf, False), (0.9, 1.0, False)])
def test_plans_with_mixed_stages_are_searched_where_their_bound_is_low_and_time_is_left(draft, share, seconds, worth):
    kept = incumbent(QUESTION, best=draft)
    kept.limit = TimeLimit(seconds)
    assert is_worth_more(kept, MixedBound(share * step(draft))) == worth
