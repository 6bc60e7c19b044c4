"""What a shape can reach, without a solver: a lower bound that no plan of it can beat, and a guess."""

from __future__ import annotations

import itertools
import math
from contextlib import suppress
from itertools import permutations

from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass, node_classes
from planner.request import Request
from planner.space.shapes import MOST_CHUNKS, Shape, searched
from sim.errors import NoRoute
from sim.plan import schedules
from sim.units import Seconds

ONE_MICROBATCH = ((1, 0),)
"""What the last stage of 1F1B has in flight (`schedules.in_flight`)."""


def quick_bound(context: PlanningContext, shape: Shape, classes: list[NodeClass], any_schedule: bool = False) -> float:
    """A lower bound on the step of a shape without solving: stages always at work, layers divided at will.

    With `any_schedule` it holds whatever the schedule of those that are searched.

    Either the pipeline stays in one class, where it must also fill and drain; or it crosses, and the stages at
    both ends of a border spend the message's time besides: T >= (L + sum of x / t) / (sum of 1 / t) over stages of t seconds
    a layer, and one such stage holds a layer at least. Under a given
    schedule one microbatch is also seen to pass all layers there and back."""
    request = context.request
    layers, m, pinned = request.workload.model.layers, shape.microbatches(request.workload), request.wishes.pp
    bound = math.inf
    for option in classes:
        most = min(option.capacity, pinned or layers, layers)
        if pinned in (None, most):
            share = min(option.forward_share, 1 / (2 * max(MOST_CHUNKS, shape.vpp) - 1)) if any_schedule else option.waited_for
            bound = min(bound, option.layer_seconds * _equal_stages(layers, most, m, share))
    alike = ([1 / option.layer_seconds] * min(option.capacity, layers) for option in classes)
    speeds = sorted(itertools.chain(*alike), reverse=True)[: pinned or layers]
    if len(classes) > 1 and len(speeds) >= (pinned or 2):
        waits = not any_schedule and not schedules.get(shape.schedule).OVERLAPS_SENDS
        pairs = [(a, b) for a in classes for b in classes if a is not b]
        border = min(context.message(a.cluster, b.cluster, shape) for a, b in pairs) if waits else 0.0
        crossing = max((layers + 2 * border * speeds[-1]) / sum(speeds), border + 1 / speeds[0])
        bound = min(bound, m * crossing)
    if any_schedule:
        return bound
    return max(bound, layers * min((option.passed for option in classes), default=math.inf))


def relaxed_bound(request: Request, context: PlanningContext, usual: bool = False) -> Seconds:
    """What the stage model gives without its whole numbers: the least quick bound of all shapes whose layers find room beside
    one microbatch each, under any schedule.

    By how much it falls where a machine, memory or work is changed is what that change is worth to the programme: its shadow
    price, for the whole change and not a small part of it. Links are no constraint of the programme, and have no price here.
    Infinite where no shape fits. With `usual` microbatch sizes it is such a price, and no bound: the largest sizes leave so few
    microbatches that the relaxation forgets what the machines are worth."""
    every = searched(request, every_size=not usual)
    layers, found = request.workload.model.layers, [node_classes(context, shape) for shape in every]
    bounds = ((quick_bound(context, classes[0].shape, classes, True), index) for index, classes in enumerate(found) if classes)
    rooms = (
        (bound, sum(option.capacity * option.room("middle", ONE_MICROBATCH) for option in found[index]))
        for bound, index in sorted(bounds)
    )
    return next((bound for bound, room in rooms if room >= layers), math.inf)


def _equal_stages(layers: int, stages: int, m: int, waits: float) -> float:
    """Least layer times of a pipeline of alike stages, layers divided at will.

    With x layers on the last stage the largest other one has (L - x) / (p - 1) at least, and takes m times that; the last waits
    for a share `waits` of the others once and takes m x. The first falls and the second grows with x, so they meet in the
    least.
    """
    if stages == 1:
        return float(m * layers)
    share = m / (stages - 1)
    last = max(layers * (share - waits) / (share + m - waits), 0.0)
    return m * last + (layers - last) * waits


def quick_estimate(
    context: PlanningContext, shape: Shape, classes: list[NodeClass], tails: bool = True, messages: bool = True
) -> float:
    """A guess at the step of a shape without solving, to begin with what is promising: on all classes, or on one alone.

    Layers by speed over all stages: the slowest stage for every microbatch (a message over the dearest border included), each
    stage once, the longest tail unless `tails` are left out, which take longest to reckon. Without `messages` either, it is
    less or the same, and soon had. Infinite where such stages do not fit their memory.
    """
    sets = [[option] for option in classes] + ([classes] if len(classes) > 1 else [])
    return min((_estimate(context, shape, some, tails, messages) for some in sets), default=math.inf)


def _estimate(context: PlanningContext, shape: Shape, classes: list[NodeClass], tails: bool, messages: bool) -> float:
    """The guess for pipelines over these classes."""
    layers, m = context.request.workload.model.layers, shape.microbatches(context.request.workload)
    speed = sum(option.capacity / option.layer_seconds for option in classes)
    stages = shape.places(m, min(sum(option.capacity for option in classes), max(layers // shape.vpp, 1)))
    in_flight = schedules.in_flight(shape.schedule, 0, stages, shape.enough(m, stages), shape.vpp)
    slowest = fill = tail = 0.0
    through = _fullest(context, shape, classes) if messages else 0.0
    crossed: list[float] = []
    for option in classes:
        size = max(shape.vpp, round(layers / speed / option.layer_seconds))
        if option.room("middle", in_flight) < size:
            return math.inf
        forward, backward = (min(size, layers) * seconds for seconds in option.layer)
        others = (other.cluster for other in classes if other is not option and messages)
        border = max((context.message(option.cluster, other, shape, in_step=True) for other in others), default=0.0)
        crossed.append(border)
        between = max(border, through) if option.waits else max(border, through) * shape.vpp
        both = forward + backward
        waits = both + max(2 * option.message if messages else 0.0, between) if option.waits else max(both, between)
        slowest = max(slowest, waits)
        fill += min(option.capacity, stages) * (2 * forward if option.splits else both) / shape.vpp
        if tails:
            tail = max(tail, option.cost("middle", min(size, layers)).tail(option.plain))
    fill += 2 * sum(sorted(crossed)[1:])  # the first microbatch there, the last one's gradients back
    if messages and len(classes) > 1:
        tail += min(context.least_tied(a.cluster, b.cluster, shape, b.capacity) for a, b in permutations(classes, 2))
    return (m - 1) * slowest + fill + tail


def _fullest(context: PlanningContext, shape: Shape, classes: list[NodeClass]) -> float:
    """Seconds of a microbatch's messages on the fullest link of a pipeline over all stages there are."""
    layers = context.request.workload.model.layers
    runs = tuple((option.cluster, min(option.capacity, layers)) for option in classes)
    if sum(count for _, count in runs) < 2:
        return 0.0
    with suppress(NoRoute):
        nic = context.nic_of(tuple(option.cluster for option in classes))
        return context.fullest(runs, shape, nic) / shape.vpp
    return 0.0
