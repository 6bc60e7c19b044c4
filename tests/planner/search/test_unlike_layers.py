"""The search of plans with the model's own layers, and its bound, against brute force."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from benchmarks.certificates.unlike import judge, unlike
from planner import api
from planner.bounds.peak_work import peak_seconds
from planner.costs.context import PlanningContext
from planner.placement.simulation import simulate_plan, step
from planner.search.unlike_layers import UnlikeSearch
from planner.space import stand_in
from planner.time_limit import TimeLimit
from tests.more import after
from tests.planner.unlike import interleaved, question


def test_the_models_own_layers_are_split_better_than_those_of_its_stand_in() -> None:
    wanted = question()
    (part,) = stand_in.stand_ins(wanted)
    before = simulate_plan(stand_in.of_model(api.plan(part), wanted))
    search = UnlikeSearch(wanted, PlanningContext(wanted), before, TimeLimit(math.inf))
    bound = search.run()
    search.polish()
    assert search.best is not None
    assert [stage.layers for stage in before.stages] == [4, 4]
    assert [stage.layers for stage in search.best.stages] == [6, 2]
    assert step(search.best) < 0.81 * step(before)
    assert 0.9 * step(search.best) < bound <= step(search.best)


def test_a_plan_that_is_near_the_bound_is_kept() -> None:
    wanted = question()
    best = api.plan(wanted)
    search = UnlikeSearch(wanted, PlanningContext(wanted), best, TimeLimit(math.inf))
    search.run()
    search.polish()
    assert search.best is best


def test_after_the_time_limit_the_known_plan_is_kept_with_the_bound_of_all_peaks() -> None:
    wanted = question()
    best = api.plan(wanted)
    search = UnlikeSearch(wanted, PlanningContext(wanted), best, TimeLimit(0.0))
    assert search.run() == search.work == search.mixed.seconds == peak_seconds(wanted) > 0
    assert search.best is best
    assert search.simulated == 0


def test_layers_of_the_plan_without_virtual_stages_are_moved_where_another_one_is_the_best() -> None:
    """The even split of the plain plan takes a fifth longer than six and two layers; the best plan is between both."""
    wanted = question()
    (part,) = stand_in.stand_ins(wanted)
    even = simulate_plan(stand_in.of_model(api.plan(part), wanted))
    chunked = api.plan(question(interleaved(2)))
    assert chunked.prediction is not None
    between = chunked.annotated(prediction=replace(chunked.prediction, step_s=0.9 * step(even)))
    search = UnlikeSearch(wanted, PlanningContext(wanted), even, TimeLimit(math.inf))
    search.best = between
    search.polish()
    assert search.best is search.plain and search.best is not None
    assert [stage.layers for stage in search.best.stages] == [6, 2]


@pytest.mark.parametrize("seed", after(2, [13, 8, 11, 3, 9, 72, 21], last=5))
def test_no_bound_is_above_the_best_plan_and_the_search_is_near_it(seed: int) -> None:
    """11: the last stage has the head alone; 13: virtual stages; 9, 8: experts in every second layer; others: `mtp_layers`."""
    verdict = judge(seed, unlike(seed, 150))
    assert verdict is not None
    assert verdict.plans > 10
    assert not verdict.is_wrong, verdict
    assert verdict.step_s <= 1.005 * verdict.best_s, verdict
