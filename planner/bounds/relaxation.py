"""Lower bounds on the step of a shape in closed form: relaxations in which layers are divisible."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass, leanest, node_classes
from planner.request import Request
from planner.space import lengths
from planner.space.shape import Shape
from planner.space.shapes import MOST_CHUNKS, searched, searched_schedules, zero_stages
from sim.plan import schedules
from sim.units import Seconds

Pace: TypeAlias = tuple[float, Seconds]
"""Of a stage: layers of a microbatch per second, and the seconds of each of its layers for which the stages behind it wait
while the pipeline fills and drains. Both may be better than they are."""
ONE_MICROBATCH = ((1, 0),)
"""Activations in flight on the last stage of 1F1B, as (microbatches, deferred weight gradients) (`schedules.in_flight`)."""


def quick_bound(context: PlanningContext, shape: Shape, classes: list[NodeClass], any_schedule: bool = False) -> float:
    """A lower bound in seconds on the step of a shape, with fractional layers; infinite where no pipeline exists.

    A pipeline of L layers and m microbatches either stays in one class, where it must also fill and drain (`_equal_stages`),
    or it crosses to another class. A crossing pipeline has stages of t_i seconds a layer. Of these, the two stages at a border
    also spend x_i = x seconds on one message of each microbatch, unless the schedule overlaps messages; x_i = 0 for the others.
    In T seconds a stage completes m microbatches, so it has at most (T / m - x_i) / t_i layers. All stages together have L, so

        T >= m (L + sum of x_i / t_i) / (sum of 1 / t_i)

    which is least for the L fastest stages (or as many as pp may be), with the border at the slowest of these. A border stage
    has at least one layer, so T >= m (x + t). In either case, one microbatch passes all layers forward and backward, without
    weight gradients, which takes at least L times the fastest layer. A pipeline of one stage takes at least m L t, where t may
    be less than in longer pipelines (`NodeClass.layer_seconds_alone`).

    Pipelines of several stages are also bounded by work, fill and drain together (`filled_and_drained`, `with_a_layer_each`).

    any_schedule: the bound holds under every schedule that is searched, not only the shape's; then x is 0, and one microbatch
    is not known to pass all layers."""
    request = context.request
    layers, m = request.workload.model.layers, shape.microbatches(request.workload)
    longest, shortest = min(lengths.longest(request, shape) or layers, layers), lengths.shortest(request)
    bound = alone = math.inf
    waited, passed = 1.0, math.inf
    splits = any_schedule and any(schedules.get(name).SPLITS_BACKWARD for name, _ in searched_schedules(request))
    for option in classes:
        most = min(option.max_stages, longest)
        if shortest == 1:
            alone = min(alone, option.layer_seconds_alone * m * layers)
        share = min(option.forward_share, 1 / (2 * max(MOST_CHUNKS, shape.vpp) - 1)) if any_schedule else option.waited_for
        waited = min(waited, share)
        passed = min(passed, option.layer[0] if splits or (option.splits and not any_schedule) else option.layer_seconds)
        if most > 1 and shortest <= most:
            bound = min(bound, option.layer_seconds * _equal_stages(layers, most, m, share))
    alike = ([1 / option.layer_seconds] * min(option.max_stages, layers) for option in classes)
    speeds = sorted(itertools.chain(*alike), reverse=True)[:longest]
    if len(classes) > 1 and len(speeds) >= max(shortest, 2):
        waits = not any_schedule and not schedules.get(shape.schedule).OVERLAPS_SENDS
        pairs = [(a, b) for a in classes for b in classes if a is not b]
        border = min(context.messages.least(a.cluster, b.cluster, shape) for a, b in pairs) if waits else 0.0
        crossing = max((layers + 2 * border * speeds[-1]) / sum(speeds), border + 1 / speeds[0])
        bound = min(bound, m * crossing)
    if speeds:
        bound = max(bound, filled_and_drained(layers, m, in_any_order((speed, waited / speed) for speed in speeds)))
        bound = max(bound, with_a_layer_each(layers, m, speeds, passed))
    if not any_schedule:
        bound = max(bound, layers * min((option.passed for option in classes), default=math.inf))
    return min(alone, bound)


def relaxed_bound(request: Request, context: PlanningContext, usual: bool = False) -> Seconds:
    """The least quick bound, under any schedule, of all shapes whose layers fit in memory beside the activations of one
    microbatch, under some ZeRO stage that is searched. Infinite where no shape fits.

    The amount by which this bound falls when devices, memory or work change is the value of that change: a shadow price, but of
    the whole change, not of a marginal one. Links between stages do not occur in the bound and have no price. usual: only the
    usual microbatch sizes. The result is then no bound, but gives better prices, because the largest sizes leave so few
    microbatches that devices hardly matter."""
    every = searched(request, every_size=not usual)
    layers, found = request.workload.model.layers, [node_classes(context, shape) for shape in every]
    bounds = ((quick_bound(context, classes[0].shape, classes, True), index) for index, classes in enumerate(found) if classes)
    return next((bound for bound, index in sorted(bounds) if _capacity(context, found[index][0].shape) >= layers), math.inf)


def _capacity(context: PlanningContext, shape: Shape) -> int:
    """Most layers that all stages of a shape hold beside the activations of one microbatch, under any searched ZeRO stage."""
    stages = zero_stages(context.request, shape)
    return sum(
        option.max_stages * max(option.memory.most_layers(role, ONE_MICROBATCH) for role in ("middle", "only"))
        for option in leanest(context, shape, stages)
    )


def filled_and_drained(layers: float, m: int, stages: Sequence[Pace]) -> Seconds:
    """Least step in seconds of every pipeline of some of these stages in this order, with fractional layers.

    Of the T seconds, the stages before leave R to a stage of pace (v, p). It has k <= R v / m layers, and leaves R - p k to
    those behind. If these hold at most c layers for each second that they have, it and they hold at most k + c max(R - p k, 0),
    which is convex in k, so at most R max(c, v / m + c max(1 - p v / m, 0)). T is at least the layers divided by what all
    stages hold in a second."""
    held = 0.0
    for speed, passed in reversed(stages):
        each = speed / m
        held = max(held, each + held * max(1 - passed * each, 0.0))
    return layers / held


def with_a_layer_each(layers: int, m: int, speeds: Sequence[float], passed: Seconds) -> Seconds:
    """Least step in seconds of every pipeline of some stages, each with a layer or more in its first virtual stage.

    speeds: layers of a microbatch that each stage computes in a second, the fastest first; passed: least seconds of one layer
    for which the stages behind wait while the pipeline fills and drains. Within T seconds, a stage behind j others of speed v
    holds at most max(T - j passed, 0) v / m layers. All stages together hold most in the order of their speed, because less
    time is left to those behind. The first n of them hold all layers only if

        T >= (m layers + sum of j passed v) / (sum of v)

    and T is the least of these values over n, because stages that have no time left count as if they held less than nothing."""
    least, held, waits = math.inf, 0.0, 0.0
    for before, speed in enumerate(speeds):
        held, waits = held + speed, waits + before * passed * speed
        least = min(least, (m * layers + waits) / held)
    return least


def in_any_order(stages: Iterable[Pace]) -> list[Pace]:
    """Stages in the order with the least bound of `filled_and_drained`: those with the shortest waits first.

    Of two neighbours a and b, b behind a, both hold v_a / m + v_b / m - p_a v_a v_b / m^2 for each second beside what those
    behind them hold, which does not depend on their order. That is more than the other way round if p_a < p_b."""
    return sorted(stages, key=lambda stage: stage[1])


def _equal_stages(layers: int, stages: int, m: int, waits: float) -> float:
    """Least step of a pipeline on p = `stages` equal sets of devices, in seconds of one layer and microbatch, with fractional
    layers.

    With x of the L layers on the last stage, the largest other stage has at least (L - x) / (p - 1) layers, so the step takes
    at least m times that. The last stage computes for m x, and waits, while the pipeline fills and drains, for a fraction
    `waits` of the other L - x layers. The first bound falls with x and the second grows, so their maximum is least where they
    are equal."""
    if stages == 1:
        return float(m * layers)
    share = m / (stages - 1)
    last = max(layers * (share - waits) / (share + m - waits), 0.0)
    return m * last + (layers - last) * waits
