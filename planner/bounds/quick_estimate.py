"""An estimate of the step of a shape in closed form. It is not a bound: it only orders the search."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import combinations, permutations

from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass
from planner.space.shape import Shape
from sim.errors import NoRoute
from sim.plan import schedules


def class_sets(classes: Sequence[NodeClass]) -> Iterator[tuple[NodeClass, ...]]:
    """All non-empty sets of up to three classes; of more classes only the fastest, the fastest two, and so on."""
    if len(classes) <= 3:
        for size in range(1, len(classes) + 1):
            yield from combinations(classes, size)
        return
    by_speed = sorted(classes, key=lambda option: option.layer_seconds)
    for size in range(1, len(classes) + 1):
        yield tuple(option for option in classes if option in by_speed[:size])


def quick_estimate(
    context: PlanningContext,
    shape: Shape,
    classes: list[NodeClass],
    tails: bool = True,
    messages: bool = True,
    between: bool = False,
) -> float:
    """An estimate of the step of a shape in seconds: the least over the pipeline on all classes and those on one class each, or
    with `between`, over those of `class_sets` that have several classes and not all.

    tails: add the longest tail (a stage's seconds after its last backward), which is slow to compute. messages: add messages.
    The estimate without both is quick, and never larger than the one with them. Infinite where stages of the estimated size do
    not fit in memory."""
    sets = [(option,) for option in classes] + ([tuple(classes)] if len(classes) > 1 else [])
    if between:
        sets = [some for some in class_sets(classes) if 1 < len(some) < len(classes)]
    return min((estimate_over(context, shape, some, tails, messages) for some in sets), default=math.inf)


def estimate_over(context: PlanningContext, shape: Shape, classes: Sequence[NodeClass], tails: bool, messages: bool) -> float:
    """The estimate for a pipeline over all of these classes of a shape; each is computed once."""
    key, known = ("quick estimate", *classes, tails, messages), classes[0].shared
    if key not in known:
        known[key] = _estimate_over(context, shape, classes, tails, messages)
    return float(known[key])


def _estimate_over(context: PlanningContext, shape: Shape, classes: Sequence[NodeClass], tails: bool, messages: bool) -> float:
    """The estimate with layers in proportion to the speed of the stages.

    It is the sum of m - 1 microbatches on the slowest stage (with a message over its costliest border), one microbatch on every
    stage, and the longest tail."""
    layers, m = context.request.workload.model.layers, shape.microbatches(context.request.workload)
    speed = sum(option.max_stages / option.layer_seconds for option in classes)
    stages = shape.longest(m, min(sum(option.max_stages for option in classes), max(layers // shape.vpp, 1)))
    in_flight, between = (schedules.in_flight(shape.schedule, stage, stages, m, shape.vpp) for stage in (0, stages // 2))
    slowest = fill = tail = 0.0
    busiest = _busiest_link(context, shape, classes) if messages else 0.0
    crossed: list[float] = []
    for option in classes:
        size = max(shape.vpp, round(layers / speed / option.layer_seconds))
        if option.memory.most_layers("middle", in_flight) < size:
            return math.inf
        size = min(size, layers)
        forward, backward = (size * seconds for seconds in option.layer)
        if fewest := option.memory.fewest("middle", between, stages):
            backward += fewest[size] * context.cluster_costs.recomputation(option.cluster, shape)
        others = (other.cluster for other in classes if other is not option and messages)
        border = max((context.messages.least(option.cluster, other, shape, together=0) for other in others), default=0.0)
        crossed.append(border)
        on_link = max(border, busiest) if option.waits else max(border, busiest) * shape.vpp
        both = forward + backward
        cycle = both + max(2 * option.message if messages else 0.0, on_link) if option.waits else max(both, on_link)
        slowest = max(slowest, cycle)
        fill += min(option.max_stages, stages) * (2 * forward if option.splits else both) / shape.vpp
        if tails:
            tail = max(tail, option.cost("middle", size).tail(option.without_virtual_stages))
    fill += 2 * sum(sorted(crossed)[1:])  # the first microbatch ahead and the gradients of the last one back
    if messages and len(classes) > 1:
        tail += min(context.tied.least(a.cluster, b.cluster, shape, b.max_stages) for a, b in permutations(classes, 2))
    return (m - 1) * slowest + fill + tail


def _busiest_link(context: PlanningContext, shape: Shape, classes: Sequence[NodeClass]) -> float:
    """Seconds of one microbatch's messages on the busiest link of a pipeline over all stages of these classes."""
    layers = context.request.workload.model.layers
    runs = tuple((option.cluster, min(option.max_stages, layers)) for option in classes)
    if sum(count for _, count in runs) < 2:
        return 0.0
    with suppress(NoRoute):
        nic = context.fleets.nic_of(tuple(option.cluster for option in classes))
        return context.loads.whole_pipeline(runs, shape, nic) / shape.vpp
    return 0.0
