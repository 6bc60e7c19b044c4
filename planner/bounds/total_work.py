"""The total-work bound: a lower bound on the step of every plan, as if no device ever waited.

A slot (tensor-parallel group) that takes t seconds for one layer of one microbatch computes at most T / t layers in T seconds.
All slots together must compute every layer of every microbatch, so T >= (layers x microbatches) / (sum of 1 / t over slots).
"""

from __future__ import annotations

import math
from dataclasses import replace

from planner.costs.context import PlanningContext
from planner.costs.mixed_stages import MixedStageCosts
from planner.request import Request
from planner.space.device_slots import Run
from planner.space.shape import Shape, split_backward
from planner.space.shapes import searched, slots


class Work:
    """Total-work bounds on the step of all plans of a shape, mixed stages included; each is computed once."""

    def __init__(self, context: PlanningContext):
        self._pp = fewest_stages(context.request)
        self._request, self._costs = context.request, MixedStageCosts(context)
        self._bounds: dict[Shape, float] = {}

    def bound(self, shape: Shape) -> float:
        """A lower bound in seconds on all plans with the shape's tp, cp, ep, microbatch size and recomputation.

        Infinite where no cluster has the slots."""
        one = split_backward(replace(shape, dp=shape.ep // math.gcd(shape.ep, shape.cp), zero_shard_size=None))
        if one not in self._bounds:
            rate = 0.0
            for cluster in self._request.clusters():
                many = slots(cluster, one.tp) if cluster.node.count >= one.tp else 0
                if many >= one.cp:
                    rate += many / one.cp / self._costs.least_seconds(one, Run(cluster, 0, many), (False, False), self._pp)[1]
            workload = self._request.workload
            total = workload.global_batch_size / shape.microbatch_size * workload.model.layers
            self._bounds[one] = total / rate if rate else math.inf
        return self._bounds[one]


def fewest_stages(request: Request) -> int:
    """1 where a pipeline of one stage is allowed, else 2: layers in pipelines of two stages or more are never faster."""
    return 1 if request.wishes.pp in (None, 1) else 2


def work_bound(context: PlanningContext) -> float:
    """A lower bound in seconds on the step of every plan of a request. Raises Infeasible where the request has no shape."""
    work = Work(context)
    return min((work.bound(shape) for shape in searched(context.request, across=True)), default=math.inf)
