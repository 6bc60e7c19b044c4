"""What a shape can reach, without a solver: a lower bound that no plan of it can beat, and a guess."""

from __future__ import annotations

import math

from planner.classes import ClassOption
from planner.shapes import Shape
from planner.workshop import Workshop
from sim import schedules


def quick_bound(workshop: Workshop, shape: Shape, classes: list[ClassOption]) -> float:
    """A lower bound on the step of a shape without solving: stages always at work, layers divided at will.

    Either the pipeline stays in one class, where it must also fill and drain; or it crosses, and the stages at
    both ends of a border spend the message's time besides: T >= (L + sum of x / t) / (sum of 1 / t) over stages of t seconds
    a layer, and one such stage holds a layer at least."""
    question = workshop.question
    layers, m, pinned = question.workload.model.layers, shape.microbatches(question.workload), question.wishes.pp
    bound = math.inf
    for option in classes:
        most = min(option.capacity, pinned or layers, layers)
        if pinned in (None, most):
            bound = min(bound, option.layer_seconds * _equal_stages(layers, most, m, option.waited_for))
    speeds = sorted((1 / c.layer_seconds for c in classes for _ in range(c.capacity)), reverse=True)[: pinned or layers]
    if len(classes) > 1 and len(speeds) >= (pinned or 2):
        waits = not schedules.get(shape.schedule).OVERLAPS_SENDS
        pairs = [(a, b) for a in classes for b in classes if a is not b]
        border = min(workshop.message(a.cluster, b.cluster, shape) for a, b in pairs) if waits else 0.0
        crossing = max((layers + 2 * border * speeds[-1]) / sum(speeds), border + 1 / speeds[0])
        bound = min(bound, m * crossing)
    return bound


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


def quick_estimate(workshop: Workshop, shape: Shape, classes: list[ClassOption]) -> float:
    """A guess at the step of a shape without solving, to begin with what is promising: layers by speed over all stages.

    The slowest stage for every microbatch (a message over the dearest border included), each stage once, the longest tail.
    Infinite where such stages do not fit their memory.
    """
    layers, m = workshop.question.workload.model.layers, shape.microbatches(workshop.question.workload)
    speed = sum(option.capacity / option.layer_seconds for option in classes)
    slowest = fill = tail = 0.0
    behind = min(sum(option.capacity for option in classes), layers, m)
    for option in classes:
        size = max(1, round(layers / speed / option.layer_seconds))
        if size > layers or option.held("middle", size) < min(behind, m):
            return math.inf
        cost = option.cost("middle", size)
        others = (other.cluster for other in classes if other is not option)
        border = max((workshop.message(option.cluster, other, shape) for other in others), default=0.0)
        slowest = max(slowest, cost.slot, cost.both + border)
        fill += option.capacity * cost.both / shape.vpp
        tail = max(tail, cost.tail(option.config))
    return (m - 1) * slowest + fill + tail
