"""A plan of one stage under the plain schedule: without borders, schedules that split the backward do the same passes."""

from __future__ import annotations

from dataclasses import replace

from planner.costs.context import PlanningContext
from planner.placement.simulation import fits, step
from planner.request import Request
from sim.plan import schedules
from sim.plan.plan import Plan

PLAIN = "1f1b"
"""The schedule whose passes others that split the backward have on one stage: F, B and W of each microbatch in turn."""
ROUNDING = 1e-9
"""Fraction by which the steps of the same passes may differ, because sums are rounded."""


def with_plain_schedule(request: Request, context: PlanningContext, plan: Plan) -> Plan:
    """A simulated plan; one of one stage under `PLAIN` if it has a schedule that splits the backward and was not asked for.

    The plan itself where the plain one takes more than `ROUNDING` longer, or is no plan of the request."""
    config = plan.config
    if config.pp > 1 or request.wishes.schedule or not schedules.get(config.schedule).SPLITS_BACKWARD:
        return plan
    plain = replace(plan, config=replace(config, schedule=PLAIN), prediction=None, certificate=None)
    if not fits(plain) or request.refuses(plain):
        return plan
    simulated = context.timelines.simulate(plain)
    return simulated if step(simulated) <= step(plan) * (1 + ROUNDING) else plan
