"""Finds the fastest plan of the certified space by brute force: every plan that might be faster than the best is simulated.

Best-first search with one priority queue of shapes, pipelines and plans, ordered by a lower bound on the step. The first item
is replaced: a shape by its pipelines, a pipeline by its plans, a plan by its simulation. When a simulated plan is the first
item, no other plan can be faster.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from benchmarks.certificates.bounds import Bounds, evenly_options
from benchmarks.certificates.space import Stages, every_shape, pipelines
from planner.placement.ranks import build
from planner.placement.simulation import fits, simulate_plan, step
from planner.request import Request
from planner.space.shape import Shape
from sim.analytic import plan_costs
from sim.analytic.evaluator import evaluate
from sim.errors import NoRoute, NotDefined, NotModelled
from sim.plan.parallel_config import BLOCK
from sim.plan.plan import Plan
from sim.units import Seconds

Item = tuple[Shape] | tuple[Shape, Stages] | Plan
STRICT = 1e-9
"""Relative difference that rounding may cause between two computations of the same seconds."""


@dataclass(frozen=True, slots=True)
class Found:
    """The fastest plan, simulated, or None; the numbers of plans that were built and simulated.

    `broken`: plans whose simulated step is below their closed form, which is an error of one of the two."""

    plan: Plan | None
    built: int = 0
    simulated: int = 0
    broken: tuple[Plan, ...] = ()

    @property
    def seconds(self) -> Seconds:
        """Step of the plan; infinite if no plan fits."""
        return step(self.plan) if self.plan is not None else math.inf


def best(request: Request) -> Found:
    """The fastest plan of the space of a request."""
    bounds, numbers = Bounds(request), itertools.count()
    queue: list[tuple[Seconds, int, Item]] = [(bounds.of_shape(s), next(numbers), (s,)) for s in every_shape(request)]
    heapq.heapify(queue)
    built = simulated = 0
    broken: list[Plan] = []
    while queue:
        least, _, item = heapq.heappop(queue)
        if isinstance(item, Plan):
            if item.prediction is not None:
                return Found(item, built, simulated, tuple(broken))
            done, simulated = simulate_plan(item), simulated + 1
            if step(done) < closed_form(item) * (1 - STRICT):
                broken.append(done)
            heapq.heappush(queue, (step(done), next(numbers), done))
        elif len(item) == 2:
            for plan in plans(request, *item):
                built += 1
                seconds = closed_form(plan) if bounds.alike(*item) else least
                heapq.heappush(queue, (max(least, seconds), next(numbers), plan))
        else:
            for stages in pipelines(request, item[0]):
                if bounds.fits(item[0], stages) and not _recomputes_none(bounds, item[0], stages):
                    heapq.heappush(queue, (max(least, bounds.of(item[0], stages)), next(numbers), (item[0], stages)))
    return Found(None, built, simulated, tuple(broken))


def _recomputes_none(bounds: Bounds, shape: Shape, stages: Stages) -> bool:
    """Whether a pipeline with a choice of layers to recompute is the one that recomputes none, which is in the space, too."""
    chosen = shape.recompute == BLOCK and bounds.request.wishes.recompute is None
    return chosen and bounds.fits(replace(shape, recompute="none"), stages)


def naive(request: Request) -> Seconds:
    """The step of the fastest plan by simulation of every plan of the space; infinite if none fits."""
    every = ((shape, stages) for shape in every_shape(request) for stages in pipelines(request, shape))
    return min((step(simulate_plan(plan)) for one in every for plan in plans(request, *one)), default=math.inf)


def plans(request: Request, shape: Shape, stages: Stages) -> Iterator[Plan]:
    """The plans of a pipeline that can be built and fit memory."""
    cluster = request.topology.fleet.cluster(stages[0][0])
    for evenly in evenly_options(cluster, shape, stages):
        with suppress(NoRoute, NotDefined):
            plan = build(request, shape, stages, "brute force", evenly)
            if fits(plan):
                yield plan


def closed_form(plan: Plan) -> Seconds:
    """Seconds of a step on an idle network by the evaluator; for plans that it does not support, a lower bound."""
    try:
        return float(evaluate([plan])[0])
    except NotModelled:
        return plan_costs.step_seconds(plan)
