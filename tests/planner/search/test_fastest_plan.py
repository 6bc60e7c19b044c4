"""The fastest plan of a search."""

from __future__ import annotations

import math
from dataclasses import replace

from planner import api
from planner.costs.context import PlanningContext
from planner.placement.simulation import step
from planner.search.fastest_plan import FastestPlan
from planner.time_limit import TimeLimit
from sim.plan.plan import Plan
from tests.planner.unlike import interleaved, question


def as_slow(plan: Plan, factor: float) -> Plan:
    """A plan as if it took so many times its step."""
    assert plan.prediction is not None
    return plan.annotated(prediction=replace(plan.prediction, step_s=factor * plan.prediction.step_s))


def test_a_plan_is_kept_only_if_it_is_simulated_to_be_faster() -> None:
    wanted = question()
    plan = api.plan(wanted)
    bare, seconds = replace(plan, prediction=None, certificate=None), step(plan)
    search = FastestPlan(wanted, PlanningContext(wanted), None, TimeLimit(math.inf))
    assert search.cutoff == math.inf
    assert search.keep(bare) == seconds and search.best is not None and step(search.best) == seconds
    assert search.cutoff == 0.995 * seconds
    slower = FastestPlan(wanted, PlanningContext(wanted), as_slow(plan, 2.0), TimeLimit(math.inf))
    assert slower.keep(bare) == seconds and slower.best is not None and step(slower.best) == seconds
    faster = FastestPlan(wanted, PlanningContext(wanted), as_slow(plan, 0.5), TimeLimit(math.inf))
    assert 0.5 * seconds < faster.keep(bare) <= seconds * (1 + 1e-9)
    assert faster.best is not None and step(faster.best) == 0.5 * seconds
    assert (search.simulated, slower.simulated, faster.simulated) == (1, 1, 0)


def test_a_plan_that_does_not_fit_has_no_step() -> None:
    wanted = question()
    plan = api.plan(wanted)
    full = replace(wanted, topology=replace(wanted.topology, memory_headroom=0.9999))
    search = FastestPlan(full, PlanningContext(full), None, TimeLimit(math.inf))
    assert search.keep(replace(plan, topology=full.topology, prediction=None, certificate=None)) == math.inf
    assert search.best is None and search.simulated == 0


def test_the_latest_best_plan_without_virtual_stages_is_remembered() -> None:
    wanted = question()
    plain, chunked = api.plan(wanted), api.plan(question(interleaved(2)))
    search = FastestPlan(wanted, PlanningContext(wanted), as_slow(plain, 4.0), TimeLimit(math.inf))
    assert search.plain is search.best
    search.keep(replace(chunked, prediction=None, certificate=None))
    assert search.best is not None and search.best.config.vpp == 2
    assert search.plain is not None and step(search.plain) == 4 * step(plain)
    assert FastestPlan(wanted, PlanningContext(wanted), chunked, TimeLimit(math.inf)).plain is None
