"""The total-work bound: a lower bound on the step of every plan, as if no device ever waited.

A slot (tensor-parallel group) that takes t seconds for one layer of one microbatch computes at most T / t layers in T seconds.
All slots together must compute every layer of every microbatch, so T >= (layers x microbatches) / (sum of 1 / t over slots).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from planner.costs.context import PlanningContext
from planner.costs.mixed_stages import mixed_costs
from planner.limits import node_rent
from planner.request import Request
from planner.space import lengths
from planner.space.device_slots import Run
from planner.space.shape import Shape, split_backward
from planner.space.shapes import searched, slots
from planner.space.unlike_tp import unlike_shapes


class Work:
    """Total-work bounds on the step of all plans of a shape, mixed stages included; each is computed once."""

    def __init__(self, context: PlanningContext):
        self._pp = fewest_stages(context.request)
        self._request, self._costs = context.request, mixed_costs(context)
        self._bounds: dict[Shape, float] = {}

    def bound(self, shape: Shape) -> float:
        """A lower bound in seconds on all plans with the shape's tp, cp, ep, etp, microbatch size and recomputation.

        Infinite where no cluster has the slots."""
        one = split_backward(shape.one_mesh)
        if one not in self._bounds:
            rate = self._rate(one)
            workload = self._request.workload
            total = workload.global_batch_size / shape.microbatch_size * workload.model.layers
            self._bounds[one] = total / rate if rate else math.inf
        return self._bounds[one]

    def _rate(self, whole: Shape) -> float:
        """Most layers of a microbatch per second that the slots of all clusters compute; with a limit of devices the fastest
        slots count, with a limit of rent those with most layers for the rent, in fractions of slots."""
        limits, rates = self._request.limits, list[tuple[float, float, float, float]]()
        for cluster in self._request.clusters():
            shape = whole.on(cluster.name)
            many = slots(cluster, shape.tp) if cluster.node.count >= shape.tp else 0
            if many >= shape.cp and limits.allows_on(cluster.name, shape, but=("dp",)):
                seconds = self._costs.least_seconds(shape, Run(cluster, 0, many), (False, False), self._pp)[1]
                rent = node_rent(cluster) / (cluster.node.count // shape.tp) if limits.rent is not None else 0.0
                rates.append((1 / shape.cp / seconds, many, shape.tp, rent))
        bounds = [sum(rate * many for rate, many, _, _ in rates)]
        if limits.devices is not None:
            bounds.append(_most([(rate, many, devices) for rate, many, devices, _ in rates], limits.devices))
        if limits.rent is not None:
            bounds.append(_most([(rate, many, rent) for rate, many, _, rent in rates], limits.rent * (1 + 1e-9)))
        return min(bounds)


def _most(rates: Iterable[tuple[float, float, float]], limit: float) -> float:
    """The largest sum of rates, given as (rate of each, how many, how much of `limit` each takes): a fractional knapsack."""
    total = 0.0
    for rate, many, taken in sorted(rates, key=lambda one: one[2] / one[0]):
        used = min(many, limit / taken) if taken else many
        total, limit = total + used * rate, limit - used * taken
    return total


def fewest_stages(request: Request) -> int:
    """1 where a pipeline of one stage is allowed, else 2: layers in pipelines of two stages or more are never faster."""
    return 1 if lengths.shortest(request) == 1 else 2


def work_bound(context: PlanningContext) -> float:
    """A lower bound in seconds on the step of every plan of a request; 0 where the time limit comes first, as it may for models
    with many experts. Raises Infeasible where the request has no shape."""
    if context.limit.is_up():
        return 0.0
    work, shapes, least = Work(context), list(searched(context.request, across=True)), math.inf
    for shape in (*shapes, *unlike_shapes(context.request, shapes)):
        if context.limit.is_up():
            return 0.0
        least = min(least, work.bound(shape))
    return least
