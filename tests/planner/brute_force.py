"""The fastest step of all plans of some shapes: every pipeline of whole stages is built."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator

from planner.placement.ranks import build
from planner.placement.simulation import fits, simulate_plan, step
from planner.request import Request
from planner.space.shape import Shape
from planner.space.shapes import overlaps, variants
from sim.analytic import plan_costs
from sim.errors import NoRoute, NotDefined
from sim.plan.plan import Plan
from tests.planner.builders import pipelines


def every_plan(request: Request, bases: Iterable[Shape]) -> Iterator[Plan]:
    """The plan of every pipeline of whole stages under every variant of some shapes."""
    for base in bases:
        for shape in itertools.chain.from_iterable(map(overlaps, variants(request, base))):
            for stages in pipelines(request, shape):
                try:
                    yield build(request, shape, stages, "by hand")
                except (NoRoute, NotDefined):
                    continue


def fastest_step(plans: Iterable[Plan]) -> float:
    """The least simulated step of the plans that fit memory; infinite for none.

    Plans whose closed form, a lower bound, is not below it need no simulation."""
    best = math.inf
    for closed, plan in sorted(((plan_costs.step_seconds(plan), plan) for plan in plans if fits(plan)), key=lambda one: one[0]):
        if closed >= best:
            break
        best = min(best, step(simulate_plan(plan)))
    return best
