"""Bounds raised by simulation of the pipelines that hold them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from planner.bounds.orders import deadline_tests
from planner.costs.node_classes import node_classes
from planner.placement.simulation import step
from planner.request import Request
from planner.search.branch_and_bound import Proof
from planner.search.budgets import Budgets
from planner.search.evaluation import Stages
from planner.search.exhaust import Exhaust, OpenVariant
from planner.search.improvement import Improvement
from planner.search.incumbent import Incumbent
from planner.search.quick_trials import QuickTrials
from planner.search.simulated_bound import KnownVariant, known_below, simulate_evaluated, simulate_fastest
from planner.space.shape import Shape
from planner.space.shapes import searched
from planner.target import Target
from tests import builders as make
from tests.more import after
from tests.planner.builders import on_one_cluster, plan_of, random_request, shape
from tests.planner.search.searches import incumbent, simulated

SLOW = on_one_cluster(6, 6, nodes=3, nics=(make.nic("ethernet", 1e7),), spec=make.device(speed=1e9, memory_bandwidth=1e12))


def known(budgets: Budgets, request: Request = SLOW) -> tuple[Incumbent, Exhaust, KnownVariant, list[float]]:
    """All pipelines of 1F1B on three nodes, evaluated and not simulated, with a slow one as incumbent; and their seconds."""
    kept = incumbent(request, budgets, simulated(SLOW, shape(), ("c", 1), ("c", 5)))
    variant = OpenVariant(tuple(deadline_tests(kept.context, node_classes(kept.context, shape()), kept.target)))
    exhaust = Exhaust(kept, Improvement(kept), [])
    kept.budgets = replace(budgets, contention=1e9)  # nothing is simulated at once
    closer, _ = exhaust.closer(shape(), variant, 0.1, only=True)
    found = KnownVariant(shape(), variant, closer)
    found.refill(kept.seen)
    assert not kept.seen
    return kept, exhaust, found, sorted(seconds for one in exhaust.every for seconds in one.seconds.values())


def test_the_bound_rises_from_one_pipeline_to_the_next():
    """One simulation, which is no faster than a plan that is said to be best: the bound is the next evaluated step above it."""
    kept, exhaust, variant, seconds = known(Budgets(bound_tries=1))
    assert variant.bound == pytest.approx(seconds[0])
    kept.best = kept.best.annotated(prediction=replace(kept.best.prediction, step_s=seconds[0] * 1.01))
    simulate_fastest(kept, exhaust, [variant], kept.cutoff, QuickTrials(kept))
    assert len(kept.seen) == 1
    assert variant.bound == pytest.approx(seconds[1])


def test_pipelines_below_the_bound_are_left_because_their_links_may_take_longer():
    """Their seconds without those of the busiest link may be below the bound, which has these. Simulated ones are not left."""
    kept, _, variant, seconds = known(Budgets())
    variant.bound = seconds[1]
    variant.refill(kept.seen)
    assert (variant.left[0][0], variant.bound, len(variant.left)) == (pytest.approx(seconds[0]), seconds[1], len(seconds))
    assert kept.offer(shape(), variant.left[0][2].stages(variant.left[0][3]))
    variant.refill(kept.seen)
    assert (variant.left[0][0], len(variant.left)) == (pytest.approx(seconds[1]), len(seconds) - 1)


def test_it_rises_no_further_than_other_bounds():
    kept, exhaust, variant, seconds = known(Budgets())
    simulate_fastest(kept, exhaust, [variant], seconds[0], QuickTrials(kept))
    assert (variant.bound, kept.seen) == (pytest.approx(seconds[0]), set())


class RuledOut(QuickTrials):
    """Quick simulations of which each takes one unit of work and rules its pipeline out."""

    def rules_out(self, shape: Shape, stages: Stages) -> bool:
        if self.is_useful:
            self.work, self.plans = self.work + 1, self.plans + 1
            self.incumbent.seen.add((shape, stages))
        return (shape, stages) in self.incumbent.seen


@pytest.mark.parametrize(("closing_work", "wide_gap", "closes"), [(100, 0.01, True), (2, 0.01, False), (100, 0.9, False)])
def test_more_quick_simulations_close_a_wide_gap_where_all_pipelines_are_known(closing_work, wide_gap, closes, monkeypatch):
    """The first one uses up their usual budget, and those of the engine find nothing."""
    budgets = Budgets(quick_work=1, bound_tries=1, closing_work=closing_work, wide_gap=wide_gap)
    kept, exhaust, variant, seconds = known(budgets)
    assert kept.best is not None
    kept.budgets = budgets
    kept.best = kept.best.annotated(prediction=replace(kept.best.prediction, step_s=seconds[0] * 1.2))
    monkeypatch.setattr(Incumbent, "simulate", lambda self, candidate: False)
    simulate_fastest(kept, exhaust, [variant], kept.target, RuledOut(kept))
    assert (variant.bound >= kept.target) is closes


def test_the_number_of_pipelines_that_may_be_faster_is_infinite_where_some_are_not_known():
    *_, variant, seconds = known(Budgets())
    assert known_below([variant], seconds[3]) == sum(one < seconds[3] for one in seconds)
    variant.variant.known = seconds[2]
    assert known_below([variant], seconds[3]) == math.inf


def test_a_faster_plan_is_kept_on_the_way():
    kept, exhaust, variant, seconds = known(Budgets())
    simulate_fastest(kept, exhaust, [variant], 1e9, QuickTrials(kept))
    assert kept.cutoff == pytest.approx(seconds[0], rel=0.05)
    assert variant.bound >= kept.target


def test_evaluated_pipelines_that_hold_no_bound_are_simulated_too():
    kept, exhaust, _, seconds = known(Budgets())
    simulate_evaluated(kept, exhaust.every, QuickTrials(kept))
    assert kept.cutoff == pytest.approx(seconds[0], rel=0.05)
    counted = len(kept.seen)
    simulate_evaluated(kept, exhaust.every, QuickTrials(kept))
    assert len(kept.seen) == counted, "no pipeline is simulated twice"


def test_pipelines_that_the_target_cannot_run_hold_no_bound():
    """Nothing runs the three-stage pipelines of this target, so the bound rises above them without a simulation."""
    short = Target("short", "any", (), lambda config, workload: iter(("pp",) * (config.pp > 2)), lambda plan: iter(()))
    kept, exhaust, variant, seconds = known(Budgets(), replace(SLOW, target=short))
    simulate_fastest(kept, exhaust, [variant], 1e9, QuickTrials(kept))
    assert {len(stages) for _, stages in kept.seen} == {2, 3}
    assert kept.best is not None and kept.best.config.pp == 2
    assert variant.bound >= kept.target > seconds[0]


@pytest.mark.parametrize("seed", after(4, [3, 5, 7, 19, 0, 13, 17]))
def test_no_raised_bound_is_above_the_best_plan(seed):
    question = random_request(seed)
    best = step(plan_of(question))
    kept = incumbent(question, Budgets(unproved_variants=4, bound_tries=3))
    proof = Proof(kept, Improvement(kept))
    left = proof.run(list(searched(question)))
    before = min([*proof.settled, *left])
    proof.raise_by_simulation()
    after = min([*proof.settled, *left])
    assert before <= after <= best * (1 + 1e-9)
