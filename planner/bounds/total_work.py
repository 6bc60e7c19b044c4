"""The total work of a step: a lower bound on every plan, from the speed of all devices that never rest.

A slot (tensor-parallel group) that takes t seconds for a layer computes at most T / t layers in T seconds; all slots together
must compute every layer of every microbatch.
"""

from __future__ import annotations

import math
from dataclasses import replace

from planner.costs.context import PlanningContext
from planner.costs.mixed_stages import LineCosts
from planner.space.device_slots import Run
from planner.space.shapes import Shape, searched, slots, splitting


class Work:
    """Lower bounds on the step of all plans of a shape, mixed stages included, each computed once."""

    def __init__(self, context: PlanningContext):
        self._question, self._costs = context.request, LineCosts(context)
        self._bounds: dict[Shape, float] = {}

    def bound(self, shape: Shape) -> float:
        """Seconds that no plan of the shape's tp, cp, ep, microbatch size and recomputation is below; infinite for no slot."""
        one = splitting(replace(shape, dp=shape.ep // math.gcd(shape.ep, shape.cp), zero_shard_size=None))
        if one not in self._bounds:
            rate = 0.0
            for cluster in self._question.clusters():
                many = slots(cluster, one.tp) if cluster.node.count >= one.tp else 0
                if many >= one.cp:
                    rate += many / one.cp / self._costs.least_seconds(one, Run(cluster, 0, many), (False, False))[1]
            workload = self._question.workload
            total = workload.global_batch_size / shape.microbatch_size * workload.model.layers
            self._bounds[one] = total / rate if rate else math.inf
        return self._bounds[one]


def work_bound(context: PlanningContext) -> float:
    """A lower bound in seconds on the step of every plan of a request. Raises Infeasible where it has no shape."""
    work = Work(context)
    return min((work.bound(shape) for shape in searched(context.request, across=True)), default=math.inf)
