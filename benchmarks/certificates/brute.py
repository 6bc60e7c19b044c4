"""The fastest plan of the stated space, by brute force: whatever might be faster than the best plan is simulated.

Shapes, pipelines and plans wait in one queue, each with a lower bound on its step. The first of the queue is looked at more
closely: a shape becomes its pipelines, a pipeline the plan that is built, a plan its simulation. The first simulation that
comes to the head of the queue is the fastest plan.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from benchmarks.certificates.bounds import Bounds, lies
from benchmarks.certificates.space import Stages, pipelines, shapes
from planner.placement.ranks import build
from planner.placement.simulation import fits, simulate_plan, step
from planner.request import Request
from planner.space.shapes import Shape
from sim.analytic import plan_costs
from sim.analytic.evaluator import evaluate
from sim.errors import PlanError
from sim.plan.plan import Plan
from sim.units import Seconds

Item = tuple[Shape] | tuple[Shape, Stages] | Plan
STRICT = 1e-9
"""Share by which two reckonings of the same seconds may differ."""


@dataclass(frozen=True, slots=True)
class Found:
    """The fastest plan, simulated, or None; how many plans were built and simulated for it.

    `broken`: plans that the engine finished before their closed form, which is a fault of one of them."""

    plan: Plan | None
    built: int = 0
    simulated: int = 0
    broken: tuple[Plan, ...] = ()

    @property
    def seconds(self) -> Seconds:
        """Its step; infinite where no plan fits."""
        return step(self.plan) if self.plan is not None else math.inf


def best(request: Request) -> Found:
    """The fastest plan of the space."""
    bounds, numbers = Bounds(request), itertools.count()
    queue: list[tuple[Seconds, int, Item]] = [(bounds.of_shape(s), next(numbers), (s,)) for s in shapes(request)]
    heapq.heapify(queue)
    built = simulated = 0
    broken: list[Plan] = []
    while queue:
        least, _, item = heapq.heappop(queue)
        if isinstance(item, Plan):
            if item.prediction is not None:
                return Found(item, built, simulated, tuple(broken))
            played, simulated = simulate_plan(item), simulated + 1
            if step(played) < closed_form(item) * (1 - STRICT):
                broken.append(played)
            heapq.heappush(queue, (step(played), next(numbers), played))
        elif len(item) == 2:
            for plan in plans(request, *item):
                built += 1
                seconds = closed_form(plan) if bounds.alike(*item) else least
                heapq.heappush(queue, (max(least, seconds), next(numbers), plan))
        else:
            for stages in pipelines(request, item[0]):
                if bounds.fits(item[0], stages):
                    heapq.heappush(queue, (max(least, bounds.of(item[0], stages)), next(numbers), (item[0], stages)))
    return Found(None, built, simulated, tuple(broken))


def naive(request: Request) -> Seconds:
    """The step of the fastest plan, every plan of the space simulated; infinite where none fits."""
    every = ((shape, stages) for shape in shapes(request) for stages in pipelines(request, shape))
    return min((step(simulate_plan(plan)) for one in every for plan in plans(request, *one)), default=math.inf)


def plans(request: Request, shape: Shape, stages: Stages) -> Iterator[Plan]:
    """The plans of a pipeline that can be built and fit."""
    cluster = request.topology.fleet.cluster(stages[0][0])
    for evenly in lies(cluster, shape, stages):
        with suppress(PlanError):
            plan = build(request, shape, stages, "brute force", evenly)
            if fits(plan):
                yield plan


def closed_form(plan: Plan) -> Seconds:
    """Seconds of a step on an idle network: the evaluator's, or where it does not hold the plan a lower bound."""
    try:
        return float(evaluate([plan])[0])
    except PlanError:
        return plan_costs.step_seconds(plan)
