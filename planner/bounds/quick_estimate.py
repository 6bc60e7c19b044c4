"""An estimate of the step of a shape in closed form. It is not a bound: it only orders the search."""

from __future__ import annotations

import math
from contextlib import suppress
from itertools import permutations

from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass
from planner.space.shapes import Shape
from sim.errors import NoRoute
from sim.plan import schedules


def quick_estimate(
    context: PlanningContext, shape: Shape, classes: list[NodeClass], tails: bool = True, messages: bool = True
) -> float:
    """An estimate of the step of a shape in seconds, to search promising shapes first: on all classes, or on the best one.

    tails: include the longest tail, which takes longest to compute. messages: include messages; without them and without tails
    the estimate is never larger, and quick. Infinite where stages of that size do not fit in memory."""
    sets = [[option] for option in classes] + ([classes] if len(classes) > 1 else [])
    return min((estimate_over(context, shape, some, tails, messages) for some in sets), default=math.inf)


def estimate_over(context: PlanningContext, shape: Shape, classes: list[NodeClass], tails: bool, messages: bool) -> float:
    """The estimate for a pipeline over all of these classes, with layers in proportion to the speed of the stages.

    It adds the slowest stage once for every microbatch but one (with a message over its costliest border), each stage once, and
    the longest tail."""
    layers, m = context.request.workload.model.layers, shape.microbatches(context.request.workload)
    speed = sum(option.capacity / option.layer_seconds for option in classes)
    stages = shape.places(m, min(sum(option.capacity for option in classes), max(layers // shape.vpp, 1)))
    in_flight = schedules.in_flight(shape.schedule, 0, stages, shape.enough(m, stages), shape.vpp)
    slowest = fill = tail = 0.0
    busiest = _busiest_link(context, shape, classes) if messages else 0.0
    crossed: list[float] = []
    for option in classes:
        size = max(shape.vpp, round(layers / speed / option.layer_seconds))
        if option.memory.most_layers("middle", in_flight) < size:
            return math.inf
        forward, backward = (min(size, layers) * seconds for seconds in option.layer)
        others = (other.cluster for other in classes if other is not option and messages)
        border = max((context.messages.least(option.cluster, other, shape, in_step=True) for other in others), default=0.0)
        crossed.append(border)
        per_slot = max(border, busiest) if option.waits else max(border, busiest) * shape.vpp
        both = forward + backward
        slot = both + max(2 * option.message if messages else 0.0, per_slot) if option.waits else max(both, per_slot)
        slowest = max(slowest, slot)
        fill += min(option.capacity, stages) * (2 * forward if option.splits else both) / shape.vpp
        if tails:
            tail = max(tail, option.cost("middle", min(size, layers)).tail(option.plain))
    fill += 2 * sum(sorted(crossed)[1:])  # the first microbatch ahead and the gradients of the last one back
    if messages and len(classes) > 1:
        tail += min(context.tied.least(a.cluster, b.cluster, shape, b.capacity) for a, b in permutations(classes, 2))
    return (m - 1) * slowest + fill + tail


def _busiest_link(context: PlanningContext, shape: Shape, classes: list[NodeClass]) -> float:
    """Seconds of one microbatch's messages on the busiest link of a pipeline over all stages of these classes."""
    layers = context.request.workload.model.layers
    runs = tuple((option.cluster, min(option.capacity, layers)) for option in classes)
    if sum(count for _, count in runs) < 2:
        return 0.0
    with suppress(NoRoute):
        nic = context.fleets.nic_of(tuple(option.cluster for option in classes))
        return context.loads.whole_pipeline(runs, shape, nic) / shape.vpp
    return 0.0
