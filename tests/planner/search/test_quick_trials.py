"""Quick simulations rule out plans that take longer than the best one, and no others."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace

import pytest

from planner.placement.ranks import build
from planner.placement.simulation import simulate_plan, step
from planner.request import Request
from planner.search.budgets import Budgets
from planner.search.evaluation import Stages
from planner.search.quick_trials import Kind, QuickTrials
from planner.space.shape import Shape
from planner.space.shapes import searched, uneven, variants
from sim.errors import NotDefined, PlanError
from sim.plan.plan import Plan
from tests.more import after
from tests.planner.builders import on_one_cluster, pipelines, random_request, shape
from tests.planner.search.searches import incumbent, simulated
from tests.planner.search.test_simulated_bound import SLOW


def steps(question: Request, of: Shape, stages: Stages) -> list[float]:
    """The steps of the plans of a pipeline, on both placements."""
    found = []
    for evenly in (False, True):
        with suppress(PlanError):
            found.append(step(simulate_plan(build(question, of, stages, "by hand", evenly))))
    return found


@pytest.mark.parametrize("seed", after(6, range(60), last=15))
def test_a_pipeline_is_ruled_out_exactly_where_all_its_plans_take_longer(seed):
    question = random_request(seed)
    of = next(iter(variants(question, next(iter(searched(question))))))
    every = [stages for stages in pipelines(question, of) if min(layers for _, layers in stages) >= of.vpp][:20]
    known = {stages: found for stages in every if (found := steps(question, of, stages))}
    if not known:
        return
    kept = incumbent(question, best=simulate_plan(build(question, of, next(iter(known)), "by hand")))
    quick = QuickTrials(kept)
    slower = {stages for stages, found in known.items() if min(found) > kept.cutoff * (1 + 1e-9)}
    assert {stages for stages in known if quick.rules_out(of, stages)} == slower
    assert quick.is_useful
    assert kept.seen == {(of, stages) for stages in slower}


def test_without_work_nothing_is_ruled_out():
    """The budget is used up by the first pipeline."""
    best = simulated(SLOW, shape(), ("c", 3), ("c", 3))
    kept = incumbent(SLOW, Budgets(quick_work=1), best.annotated(prediction=replace(best.prediction, step_s=1e-9)))
    quick = QuickTrials(kept)
    assert quick.is_useful
    assert quick.rules_out(shape(), (("c", 1), ("c", 5)))
    assert not quick.is_useful
    assert not quick.rules_out(shape(), (("c", 2), ("c", 4)))


@pytest.mark.parametrize(("plans", "is_allowed"), [(3, True), (4, False)])
def test_more_work_is_allowed_where_it_suffices_for_all_plans(plans, is_allowed):
    """Two plans took four units of work; ten may be used in all."""
    quick = QuickTrials(incumbent(SLOW, Budgets(quick_work=4, closing_work=10)), work=4, plans=2)
    assert not quick.is_useful
    quick.allow(plans)
    assert quick.is_useful is is_allowed


def test_what_cannot_be_built_or_is_not_modelled_is_not_ruled_out():
    def refused(layers: tuple[int, ...]) -> Plan:
        raise NotDefined("no such plan")

    quick = QuickTrials(incumbent(SLOW))
    assert not quick.is_slower(Kind("kind", refused, 12, True), (3, 3), 0.0)
    assert quick.is_useful
    plans = [simulated(SLOW, shape(schedule=name), ("c", 3), ("c", 3)) for name in ("1f1b", "gpipe")]
    other = Kind("other", lambda layers: plans[layers != (3, 3)], 12, True)
    assert quick.is_slower(other, (3, 3), 0.0)
    assert not quick.is_slower(other, (2, 4), 0.0)
    assert not quick.is_useful


def test_long_plans_are_left_to_the_engine():
    plan = simulated(SLOW, shape(), ("c", 3), ("c", 3))
    for many, expected in ((11, False), (12, True)):
        quick = QuickTrials(incumbent(SLOW, Budgets(forwards_of_a_try=many)))
        assert quick.is_slower(Kind("kind", lambda layers: plan, 12, True), (3, 3), 0.0) is expected
        assert quick.is_useful is expected


def test_both_placements_must_be_slower():
    """Two stages of three replicas on two nodes of four devices: filled one after the other, or three on each."""
    question = on_one_cluster(4, 6, nodes=2, devices=4)
    of, stages = shape(dp=3), (("c", 2), ("c", 2))
    (cluster,) = question.clusters()
    assert uneven(cluster, of, 2)
    both = steps(question, of, stages)
    assert len(set(both)) == 2
    best = simulate_plan(build(question, of, stages, "by hand"))
    for seconds, expected in ((min(both) * 0.99, True), (math.sqrt(min(both) * max(both)), False), (max(both), False)):
        kept = incumbent(question, best=best.annotated(prediction=replace(best.prediction, step_s=seconds)))
        assert QuickTrials(kept).rules_out(of, stages) is expected
