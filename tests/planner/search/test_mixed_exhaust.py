"""The bound of plans with mixed stages rises as the plans that hold it are ruled out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from planner.bounds.mixed_deadline import MixedBound, mixed_bound
from planner.placement.ranks import assemble
from planner.placement.simulation import fits, simulate_plan, step
from planner.request import Request
from planner.search.budgets import Budgets
from planner.search.fitting import fitting
from planner.search.incumbent import Incumbent
from planner.search.mixed import is_mixed, mixed_placements
from planner.search.mixed_exhaust import exhaust_mixed
from planner.space.device_slots import devices
from planner.space.mixed_schedules import variants_of_mixed
from sim.errors import Infeasible, NoRoute, NotDefined, NotModelled
from sim.plan.plan import Plan
from tests import more
from tests.planner.builders import random_request
from tests.planner.search.searches import incumbent
from tests.planner.targets import alike_replicas

SEVERAL = [seed for seed in range(60) if len(list(random_request(seed).clusters())) > 1]
"""Seeds of fleets of several clusters."""


def divided(total: int, replicas: int) -> Iterator[tuple[int, ...]]:
    """All numbers of microbatches of replicas, of at least one each."""
    for cuts in itertools.combinations(range(1, total), replicas - 1):
        yield tuple(b - a for a, b in itertools.pairwise((0, *cuts, total)))


def steps_of_all(question: Request, own: bool = False) -> list[float]:
    """The steps of all plans with mixed stages whose replicas have equally many microbatches, by brute force; with `own`, also
    of those with other numbers."""
    found, batch, layers = list[float](), question.workload.global_batch_size, question.workload.model.layers
    for placed_shape, placed in mixed_placements(question):
        for one in variants_of_mixed(question, placed_shape):
            total = batch // one.microbatch_size
            numbers = list(divided(total, one.dp)) if own else [(total // one.dp,) * one.dp]
            every = itertools.product(itertools.product(range(1, layers + 1), repeat=len(placed)), numbers)
            for split, microbatches in every:
                if sum(split) == layers and sum(microbatches) * one.microbatch_size == batch:
                    with suppress(NoRoute, NotDefined, NotModelled, Infeasible):
                        plan = assemble(question, one, split, devices(placed, one.tp), "by hand", microbatches)
                        found += [step(simulate_plan(plan))] if fits(plan) else []
    return found


def begun(question: Request, seconds: float, budgets: Budgets | None = None) -> tuple[Incumbent, MixedBound]:
    """A search whose target, and whose bound of whole stages, are at some seconds, and the bound of mixed stages."""
    kept = incumbent(question, budgets)
    kept.lower_bound = seconds
    return kept, mixed_bound(kept.context, mixed_placements(question), seconds, kept.limit)


def alike(seed: int) -> Request:
    return replace(random_request(seed), target=alike_replicas())


@pytest.mark.parametrize("seed", more.after(5, SEVERAL))
def test_the_bound_is_the_fastest_of_all_plans_or_that_of_whole_stages(seed):
    """Without a limit of plans, where no bound of whole stages is below, the fastest plan of all is found."""
    question = alike(seed)
    every = steps_of_all(question)
    if not every:
        return
    for seconds in (2 * min(every), min(every) * (1 - 1e-6)):
        kept, before = begun(question, seconds, Budgets(mixed_bound_tries=10**6))
        after = exhaust_mixed(kept, before, kept.lower_bound)
        assert before.seconds <= after.seconds <= seconds
        assert after.seconds <= min(every) * (1 + 1e-9) or kept.cutoff == pytest.approx(min(every), rel=1e-9)
        assert after.seconds <= kept.cutoff


@pytest.mark.parametrize("seed", more.after(3, SEVERAL))
def test_a_limit_of_simulations_leaves_a_bound_below_all_plans(seed):
    """The best plan is twice as slow as the fastest one, so that all gaps are wide; or as fast, and none is. Quick simulations
    may rule out one plan, or all."""
    question = alike(seed)
    every = steps_of_all(question)
    if not every:
        return
    for seconds, work in itertools.product((2 * min(every), min(every)), (1, 10**9)):
        bounds = list[float]()
        for tries in (1, 3, 10**6):
            budgets = Budgets(mixed_bound_tries=tries, wide_gap=1e-6, quick_work=work)
            kept, before = begun(question, seconds, budgets)
            kept.keep(of_step(question, seconds))
            bounds.append(exhaust_mixed(kept, before, kept.lower_bound).seconds)
            assert before.seconds <= bounds[-1] <= min(every) * (1 + 1e-9) or kept.cutoff == pytest.approx(min(every), rel=1e-9)
            assert bounds[-1] <= kept.cutoff
        assert bounds == sorted(bounds) or kept.cutoff < seconds


def of_step(question: Request, seconds: float) -> Plan:
    """Any plan of a request, as if its step had so many seconds."""
    plan = fitting(question, "by hand")
    assert plan is not None
    plan = simulate_plan(plan)
    assert plan.prediction is not None
    return plan.annotated(prediction=replace(plan.prediction, step_s=seconds))


def test_plans_below_the_bound_are_listed_only_where_they_are_few():
    """Where no plan may be simulated, the bound is that of the recurrence; where no split may be listed, it stays."""
    question = alike(7)
    seconds = 2 * min(steps_of_all(question))
    found = {}
    for name, budgets in (("none listed", Budgets(mixed_splits=0)), ("none simulated", Budgets(mixed_bound_tries=0))):
        kept, before = begun(question, seconds, budgets)
        found[name] = exhaust_mixed(kept, before, kept.lower_bound)
        assert kept.best is None and found[name].holders
    kept, before = begun(question, seconds)
    whole = exhaust_mixed(kept, before, kept.lower_bound)
    assert found["none listed"].seconds == before.seconds <= found["none simulated"].seconds <= whole.seconds
    assert kept.best is not None and is_mixed(kept.best)


@pytest.mark.parametrize("seed", more.after(2, [7, *SEVERAL[:16]]))
def test_no_plan_of_replicas_with_numbers_of_their_own_is_below_the_bound(seed):
    """Of any split of the microbatches over the replicas; none is simulated, and the bound rises on fleet 7."""
    question = random_request(seed)
    every = steps_of_all(question, True)
    if not every:
        return
    for seconds in (2 * min(every), 1e3 * min(every)):
        kept, before = begun(question, seconds)
        after = exhaust_mixed(kept, before, kept.lower_bound).seconds
        assert before.seconds <= after <= min([kept.cutoff, *every]) * (1 + 1e-9)
        assert seed != 7 or (before.seconds < after and kept.best is None)


def test_nothing_is_simulated_where_whole_stages_have_the_bound():
    kept, before = begun(alike(7), 1e3)
    for whole in (before.seconds, 0.5 * before.seconds):
        kept.lower_bound = whole
        assert exhaust_mixed(kept, before, kept.lower_bound).seconds == before.seconds and kept.best is None
