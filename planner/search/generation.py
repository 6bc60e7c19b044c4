"""Generates promising pipelines of a shape over a set of node classes, without a solver.

Where there are few pipelines, all are listed. Otherwise the cycle of the stages (seconds between two microbatches) is limited.
For each of the lowest feasible limits, a stage of a class has as many layers as its cycle and memory allow, and stages that are
not needed are dropped from the slowest classes. This gives the number of stages of each class. Layers are then assigned one by
one, each to the stage that would finish its microbatches first with it, as far as its memory allows (list scheduling; Graham,
Bell System Technical Journal 45(9), 1966)."""

from __future__ import annotations

import bisect
import heapq
import math
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise, permutations, product

from planner.bounds.greedy_filling import Pipeline
from planner.costs.node_classes import NodeClass
from planner.models.class_orders import EVERY_ORDER, orders
from planner.search.evaluation import PipelineEvaluation, roles
from planner.space import lengths
from planner.space.runnable import runs

EVERY = 60
"""Number of pipelines of a shape over a set of classes up to which all are listed and evaluated (a guess). More take longer."""
LIMITS = 3
"""Number of different stage counts that are tried, from the lowest feasible limit of the cycle on (a guess)."""
ROUNDING = 1e-9
"""Relative tolerance with which a stage's cycle is compared with a limit."""


def every_pipeline(evaluation: PipelineEvaluation) -> list[Pipeline] | None:
    """Every pipeline that has a stage on each class and fits memory; None where there may be more than `EVERY`."""
    pipelines: list[Pipeline] = []
    classes, layers, shape = evaluation.classes, evaluation.layers, evaluation.shape
    stage_counts = [range(1, min(option.max_stages, layers) + 1) for option in classes]
    if math.prod(len(counts) for counts in stage_counts) > EVERY:
        return None
    for order in permutations(range(len(classes))):
        for counts in product(*stage_counts):
            pp = sum(counts)
            stages = [i for i in order for _ in range(counts[i])]
            if not _allows(evaluation, stages):
                continue
            if len(pipelines) + math.comb(layers - 1, pp - 1) > EVERY:
                return None
            capacity = evaluation.layer_capacity(stages)
            for cuts in combinations(range(1, layers), pp - 1):
                split = [b - a for a, b in pairwise((0, *cuts, layers))]
                if all(shape.vpp <= k <= limit for k, limit in zip(split, capacity, strict=True)):
                    pipelines.append(tuple(zip(stages, split, strict=True)))
    return pipelines


def _allows(evaluation: PipelineEvaluation, stages: Sequence[int]) -> bool:
    """Whether a pipeline with stages of these classes is allowed."""
    names = [evaluation.classes[i].cluster.name for i in stages]
    return lengths.allows_stages(evaluation.context.request, evaluation.shape, names)


def _allows_length(evaluation: PipelineEvaluation, pp: int) -> bool:
    request, shape = evaluation.context.request, evaluation.shape
    return shape.is_defined(evaluation.microbatches, pp) and lengths.allows(request, shape, pp) and runs(request, shape, pp)


def promising(evaluation: PipelineEvaluation, by_speed: bool = False, waits: bool = False) -> Iterator[Pipeline]:
    """Pipelines with a stage on each class: orders of the classes with every stage count of `_stage_counts`.

    Orders are those of `orders`; `by_speed`: of more than `EVERY_ORDER` classes, those by speed instead. `waits` is that of
    `assigned_layers`."""
    classes = evaluation.classes
    number = {id(option): i for i, option in enumerate(classes)}
    chosen = orders(evaluation.context, list(classes)) if len(classes) > 1 else [classes]
    if by_speed and len(classes) > EVERY_ORDER:
        chosen = _orders_by_speed(classes)
    stage_counts = _stage_counts(evaluation)
    for order in dict.fromkeys(chosen):
        for counts in stage_counts:
            stages = [number[id(option)] for option in order for _ in range(counts[number[id(option)]])]
            layers = assigned_layers(evaluation, stages, waits) if _allows(evaluation, stages) else None
            if layers is not None:
                yield tuple(zip(stages, layers, strict=True))


def _orders_by_speed(classes: Sequence[NodeClass]) -> list[tuple[NodeClass, ...]]:
    """The fastest class first, last, and in the middle, with slower classes on both sides.

    Fast stages hold many layers and few microbatches at the end, and wait least where others warm up; memory of the classes and
    latency of the borders decide which order is best."""
    fastest_first = tuple(sorted(classes, key=lambda option: option.layer_seconds))
    middle = (*fastest_first[1::2][::-1], *fastest_first[::2])
    return [fastest_first, fastest_first[::-1], middle]


def _stage_counts(evaluation: PipelineEvaluation) -> list[tuple[int, ...]]:
    """Number of stages of each class, for the lowest limits of the cycle at which the classes hold all layers."""
    classes = evaluation.classes
    capacity = [min(option.max_stages, evaluation.layers) for option in classes]
    stage_seconds = [sorted(_middle_stage_seconds(option)) for option in classes]
    slowest_first = sorted(range(len(classes)), key=lambda i: -classes[i].layer_seconds)
    result: dict[tuple[int, ...], None] = {}
    limits = sorted({seconds for each in stage_seconds for seconds in each})

    def layers_within(limit: float) -> list[int]:
        """Most layers of a stage of each class whose cycle does not exceed the limit."""
        return [bisect.bisect_right(each, limit * (1 + ROUNDING)) for each in stage_seconds]

    def holds_all(limit: float) -> bool:
        each = layers_within(limit)
        return all(each) and sum(n * k for n, k in zip(capacity, each, strict=True)) >= evaluation.layers

    for limit in limits[bisect.bisect_left(limits, True, key=holds_all) :]:
        layers_each = layers_within(limit)
        surplus = sum(n * k for n, k in zip(capacity, layers_each, strict=True)) - evaluation.layers
        counts = list(capacity)
        for i in slowest_first:
            dropped = min(surplus // layers_each[i], counts[i] - 1)
            counts[i], surplus = counts[i] - dropped, surplus - dropped * layers_each[i]
        counts = _with_allowed_length(evaluation, counts, slowest_first)
        if counts:
            result[tuple(counts)] = None
        if len(result) >= LIMITS:
            break
    return list(result)


def _middle_stage_seconds(option: NodeClass) -> list[float]:
    """Seconds of a microbatch on a middle stage of 1, 2, ... layers, as far as memory holds them with one microbatch."""
    one = "middle", ((1, 0),)
    most, fewest = option.memory.most_layers(*one), option.memory.fewest(*one)
    return [option.cost("middle", layers, fewest[layers] if fewest else 0).cycle for layers in range(1, most + 1)]


def _with_allowed_length(evaluation: PipelineEvaluation, counts: list[int], slowest_first: list[int]) -> list[int]:
    """The counts changed to a pipeline length that the schedule and a pinned pp allow; empty where there is none.

    Slow classes lose stages first, and fast classes gain them first."""
    shape, classes = evaluation.shape, evaluation.classes
    total, capacity = sum(counts), sum(option.max_stages for option in classes)
    request, longest = evaluation.context.request, evaluation.layers // shape.vpp
    most = min(longest, lengths.longest(request, shape) or longest)
    pp = request.wishes.pp or shape.longest(evaluation.microbatches, max(min(total, most), lengths.shortest(request)))
    if not runs(request, shape, pp):
        pp = 1 if pp > 1 else 2
    if not _allows_length(evaluation, pp) or not len(classes) <= pp <= min(capacity, longest):
        return []
    for i in slowest_first:
        dropped = max(min(total - pp, counts[i] - 1), 0)
        counts[i], total = counts[i] - dropped, total - dropped
    for i in reversed(slowest_first):
        added = max(min(pp - total, classes[i].max_stages - counts[i]), 0)
        counts[i], total = counts[i] + added, total + added
    return counts


def assigned_layers(evaluation: PipelineEvaluation, stages: list[int], waits: bool = True) -> list[int] | None:
    """Layers of each stage, given its class: one by one to the stage that finishes first; None where memory is short.

    waits: a stage waits for its own messages, so that one at a border of nodes or clusters has fewer layers; else for the least
    messages of its class."""
    classes, pp, m = evaluation.classes, len(stages), evaluation.microbatches
    stage_roles, capacity, least = roles(pp), evaluation.layer_capacity(stages), evaluation.shape.vpp
    if min(capacity) < least or sum(capacity) < evaluation.layers or least * pp > evaluation.layers:
        return None
    fewest = evaluation.fewest(stages)
    ahead, back, _ = evaluation.messages(tuple(stages)) if waits else ([], [], 0.0)
    fill, before = [], 0.0
    even = max(1, round(evaluation.layers / pp))
    passed = {i: sum(classes[i].entry("middle", even)) + 2 * classes[i].message for i in set(stages)}
    for i in stages:
        fill.append(before)
        before += passed[i]
    layers = [least] * pp

    def finish(stage: int) -> tuple[float, int]:
        """(when the stage ends its microbatches with one more layer, stage)."""
        more, option, role = layers[stage] + 1, classes[stages[stage]], stage_roles[stage]
        if waits:
            sends = ahead[stage] if stage + 1 < pp else 0.0, back[stage]
            cost = option.with_messages(role, more, *sends, fewest[stage][more])
        else:
            cost = option.cost(role, more, fewest[stage][more])
        return fill[stage] + m * cost.cycle, stage

    heap = [finish(stage) for stage in range(pp) if capacity[stage] > least]
    heapq.heapify(heap)
    for _ in range(evaluation.layers - least * pp):
        if not heap:
            return None
        _, stage = heapq.heappop(heap)
        layers[stage] += 1
        if layers[stage] < capacity[stage]:
            heapq.heappush(heap, finish(stage))
    return layers
