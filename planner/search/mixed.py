"""Plans with mixed stages: the replicas of a stage are on several clusters, and run microbatches by their speed.

There are two families. On a line, the slots of all clusters follow one another, in some order of the clusters, and each stage
takes the next ones, so that no slot is left over where two clusters meet (HETHUB and Metis place their stages like this). By
replica, each pipeline keeps to one cluster, which has as many pipelines as it has room for, and only gradients cross clusters.
Microbatches go one by one to the replica that would finish them first (list scheduling), and layers go to stages likewise, as
far as memory allows. The layouts with the least estimates are built, and evaluated by `sim.analytic.evaluator`.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from planner.bounds.total_work import Work
from planner.costs.context import PlanningContext
from planner.costs.mixed_stages import MixedStageCosts
from planner.placement.ranks import assemble
from planner.placement.simulation import fits
from planner.request import Request
from planner.search.shortlist import shortlist
from planner.space.device_slots import Run, StageSlots, cut, devices, level, replicas
from planner.space.shapes import Shape, searched, slots, splitting, variants
from sim.analytic.evaluator import evaluate
from sim.errors import PlanError
from sim.hardware.cluster import Cluster, Device
from sim.plan import schedules
from sim.plan.plan import Plan

ORDERS = 6
"""Orders of the clusters along a line that are searched: all of three clusters. More widen the space, and take longer."""
SHORT = 8
"""Stages up to which pipelines of every length are searched by replica; longer ones only where the length divides the layers.
A guess; a larger one widens the space, and takes longer."""
ESTIMATED = 24
"""Layouts whose messages and gradients are estimated under every schedule, the best by compute first (a guess)."""
SIMULATED_WORK = 1_000
"""Stages times microbatches above which a plan is left out (a guess): where its step does not repeat, the engine is slow."""
RANKS = 6_000
"""Ranks, in all, of the plans that are built (a guess), but for the first two plans. More plans take longer to build."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The slots and layers of each stage, the microbatches of each replica, and estimated seconds of a step."""

    seconds: float
    shape: Shape
    stages: tuple[StageSlots, ...]
    layers: tuple[int, ...]
    microbatches: tuple[int, ...]


def mixed(
    context: PlanningContext, strategy: str, below: float = math.inf, deadline: float = math.inf
) -> list[tuple[float, Plan]]:
    """(step on an idle network, plan) of plans with mixed stages that fit memory and might take less than `below` seconds.

    The fastest first; of plans with equal placement only the fastest. Once `deadline`, a time of `time.monotonic`, has passed,
    no more layouts are estimated, and at most one is evaluated.
    """
    request = context.request
    costs, work = MixedStageCosts(context), Work(context)
    able = (pair for pair in layouts(request, every_size=False) if work.bound(pair[0]) < below)
    in_time = itertools.takewhile(lambda _: time.monotonic() < deadline, able)
    by_compute = ((_layout(costs, splitting(shape), stages, False), (shape, stages)) for shape, stages in in_time)
    rough = ((layout.seconds, pair) for layout, pair in by_compute if layout is not None and layout.seconds < below)
    best = shortlist(rough, lambda pair: _with_whole_step(costs, *pair), ESTIMATED, deadline)
    found = [
        layout
        for one in best
        for variant in _schedules(request, replace(one.shape, schedule=request.wishes.schedule or "1f1b"))
        if (layout := _layout(costs, variant, one.stages, True)) is not None and layout.seconds < below
    ]
    found.sort(key=lambda layout: layout.seconds)
    plans: dict[tuple[Device, ...], tuple[float, Plan]] = {}
    for seconds, plan in sorted(_evaluated(request, found, strategy, deadline), key=lambda pair: pair[0]):
        plans.setdefault(plan.placement, (seconds, plan))
    return list(plans.values())


def _evaluated(request: Request, found: Iterable[Layout], strategy: str, deadline: float) -> list[tuple[float, Plan]]:
    """(seconds by the evaluator, plan) of the first layouts that can be built and fit, up to `RANKS` ranks in all."""
    evaluated: list[tuple[float, Plan]] = []
    ranks = 0
    for layout in found:
        size = layout.shape.tp * layout.shape.slots * len(layout.stages)
        if len(layout.stages) * max(layout.microbatches) > SIMULATED_WORK:
            continue
        if (ranks + size > RANKS and len(evaluated) >= 2) or (evaluated and time.monotonic() > deadline):
            break
        ranks += size
        with suppress(PlanError):  # it cannot be built, or is not modelled
            placement = devices(layout.stages, layout.shape.tp)
            plan = assemble(request, layout.shape, layout.layers, placement, strategy, layout.microbatches)
            if fits(plan):
                evaluated.append((float(evaluate([plan])[0]), plan))
    return evaluated


def is_mixed(plan: Plan) -> bool:
    """Whether the replicas of some stage are on several clusters."""
    width = plan.config.tp * plan.config.dp_cp
    return any(
        len({device.cluster for device in plan.placement[first : first + width]}) > 1
        for first in range(0, len(plan.placement), width)
    )


def layouts(request: Request, every_size: bool = True) -> Iterator[tuple[Shape, tuple[StageSlots, ...]]]:
    """The shapes of plans with mixed stages, with the slots of each stage: on lines, then by replica. None for one cluster.

    With `every_size`, every microbatch size that divides a replica's batch, else the usual ones."""
    if len(list(request.clusters())) > 1:
        shapes = tuple(searched(request, across=True, every_size=every_size))
        yield from itertools.chain(_on_lines(request, shapes), _by_replica(request, shapes))


def _schedules(request: Request, shape: Shape) -> Iterator[Shape]:
    """Variants under which replicas may differ in their number of microbatches."""
    for variant in variants(request, shape):
        if not schedules.get(variant.schedule).CHUNKED and variant.zero_stage <= 1:
            yield variant


def _on_lines(request: Request, shapes: tuple[Shape, ...]) -> Iterator[tuple[Shape, tuple[StageSlots, ...]]]:
    """Stages on the next slots of a line of all clusters, where some stage is on several clusters."""
    clusters, layers, pinned = list(request.clusters()), request.workload.model.layers, request.wishes.pp
    for shape in shapes:
        for order in itertools.islice(itertools.permutations(clusters), ORDERS):
            stages = cut(order, shape.tp, shape.slots, pinned or layers)
            if any(len(stage) > 1 for stage in stages) and pinned in (None, len(stages)):
                yield shape, stages


def _by_replica(request: Request, shapes: tuple[Shape, ...]) -> Iterator[tuple[Shape, tuple[StageSlots, ...]]]:
    """Each replica on one cluster; dp is the number of pipelines of pp stages that the clusters have room for."""
    clusters, layers, wishes = list(request.clusters()), request.workload.model.layers, request.wishes
    seen: set[tuple[Shape, int]] = set()
    for shape in shapes:
        capacity = [slots(cluster, shape.tp) // shape.cp for cluster in clusters]
        lengths = (pp for pp in range(1, min(layers, max(capacity)) + 1) if pp <= SHORT or layers % pp == 0)
        for pp in [wishes.pp] if wishes.pp else lengths:
            pipelines = [count // pp for count in capacity]
            dp = sum(pipelines)
            total = request.workload.global_batch_size // shape.microbatch_size
            one = replace(shape, dp=dp)
            if sum(map(bool, pipelines)) < 2 or (one, pp) in seen or dp > total or wishes.dp not in (None, dp):
                continue
            seen.add((one, pp))
            if dp * shape.cp % shape.ep or dp * shape.cp % (shape.zero_shard_size or 1):
                continue
            yield one, tuple(_stage_by_replica(clusters, pipelines, shape.cp, stage) for stage in range(pp))


def _stage_by_replica(clusters: Iterable[Cluster], pipelines: list[int], cp: int, stage: int) -> StageSlots:
    """The slots of one stage, where each cluster has so many pipelines."""
    counts = zip(clusters, pipelines, strict=True)
    return tuple(Run(cluster, stage * count * cp, count * cp) for cluster, count in counts if count)


def _with_whole_step(costs: MixedStageCosts, shape: Shape, stages: tuple[StageSlots, ...]) -> list[Layout]:
    """The layout under a schedule that splits the backward, or the shape's where waiting weight gradients do not fit."""
    for one in (splitting(shape), shape):
        layout = _layout(costs, one, stages, True)
        if layout is not None:
            return [layout]
    return []


def _layout(costs: MixedStageCosts, shape: Shape, stages: tuple[StageSlots, ...], whole: bool) -> Layout | None:
    """The layout of given stages, with its layers and microbatches; None where there is none.

    Layers are assigned by the speed of the stages, then microbatches by the speed of the replicas. Without `whole`, seconds are
    those of compute alone, and memory is not checked. With it, messages, gradients and the optimizer count, and memory does."""
    workload, pp = costs.workload, len(stages)
    total = workload.global_batch_size // shape.microbatch_size
    try:
        even = max(total // shape.dp, 1)
        most = [costs.most(shape, stage, i, pp, even) if whole else workload.model.layers for i, stage in enumerate(stages)]
        ends = [(i == 0, i == pp - 1) for i in range(pp)]
        lines = [costs.line_seconds(shape, stage, end) for stage, end in zip(stages, ends, strict=True)]
        layers = level(lines, most, workload.model.layers, 1)
        if layers is None:
            return None
        groups = replicas(stages, shape.cp)
        slowest = [_slowest_stage(costs, shape, group, layers) for group in groups]
        counts = [group[0].count // shape.cp for group in groups]
        microbatches = _shared(slowest, counts, total)
        if not microbatches or sum(m * count for m, count in zip(microbatches, counts, strict=True)) != total:
            return None
        per_replica = tuple(itertools.chain.from_iterable(map(itertools.repeat, microbatches, counts)))
        fill = sum(s + k * c for k, (s, c) in zip(layers, lines, strict=True))
        seconds = max(m * slot for m, slot in zip(microbatches, slowest, strict=True)) + (pp - 1) / pp * fill
        if whole:
            seconds = _whole_step(costs, shape, stages, layers, list(zip(microbatches, slowest, strict=True)))
        return Layout(seconds, shape, stages, layers, per_replica)
    except PlanError:  # no route, not modelled, or a schedule that is not defined for the numbers
        return None


def _whole_step(
    costs: MixedStageCosts,
    shape: Shape,
    stages: tuple[StageSlots, ...],
    layers: tuple[int, ...],
    replica_groups: list[tuple[int, float]],
) -> float:
    """Estimated seconds of a step; `replica_groups` are (microbatches, seconds of one on the slowest stage)."""
    pp = len(stages)
    ends = [(i == 0, i == pp - 1) for i in range(pp)]
    stage_costs = [costs.cost(shape, stage, k, end) for stage, k, end in zip(stages, layers, ends, strict=True)]
    messages = costs.messages(shape, stages)
    waits = not schedules.get(shape.schedule).OVERLAPS_SENDS
    fill = sum((cost.forward + cost.inputs) for cost in stage_costs) + sum(messages)
    longest = max(slot for _, slot in replica_groups)
    slowest = longest + (max(messages, default=0.0) if waits else 0.0)
    busy = max(m * (slot + slowest - longest) for m, slot in replica_groups)
    return busy + (pp - 1) / pp * fill + max(cost.tail(costs.config(shape, pp)) for cost in stage_costs)


def _slowest_stage(costs: MixedStageCosts, shape: Shape, group: tuple[Run, ...], layers: tuple[int, ...]) -> float:
    """Seconds of a microbatch on the slowest stage of a replica, given its slots and layers of each stage."""
    last = len(group) - 1
    lines = [costs.own_seconds(shape, run, (i == 0, i == last)) for i, run in enumerate(group)]
    return max(s + k * c for k, (s, c) in zip(layers, lines, strict=True))


def _shared(slots: list[float], counts: list[int], total: int) -> list[int]:
    """Microbatches of each replica of each group, so that the last replica finishes soonest; empty where there are none.

    slots: seconds of a microbatch on a replica of each group; counts: replicas of each group; total: microbatches in all.
    Replicas of a group have equally many, so microbatches go to a whole group at a time: to the one that finishes first."""
    share = _proportional(slots, counts, total)
    left = total - sum(count * given for count, given in zip(counts, share, strict=True))
    while left > 0:
        able = [i for i, count in enumerate(counts) if count <= left]
        if not able:
            return []
        best = min(able, key=lambda i: (share[i] + 1) * slots[i])
        share[best] += 1
        left -= counts[best]
    return share if left == 0 else []


def _proportional(slots: list[float], counts: list[int], total: int) -> list[int]:
    """Microbatches that each replica finishes by a time at which enough are left for any group; at least 1."""
    seconds = (total - 2 * max(counts)) / sum(count / slot for count, slot in zip(counts, slots, strict=True))
    share = []
    for slot in slots:
        given = max(int(seconds / slot) - 1, 1)
        while (given + 1) * slot <= seconds:
            given += 1
        share.append(given)
    left = total - sum(count * given for count, given in zip(counts, share, strict=True))
    return share if left >= max(counts) else [1] * len(slots)
