"""Mixed stages: pipelines whose stages stand on several clusters, with microbatches by the speed of each replica.

Two families. On a line the slots of all clusters lie one behind the other, in some order, and every stage takes the next ones,
so that no slot is left where one cluster's end and the next one's begin (HETHUB and Metis lay their stages so). Or every
replica keeps to one cluster, which has as many of them as it has room for: then only gradients cross. Replicas on faster
devices run more microbatches: each next one goes to the replica that would be done with it first. Layers go to stages
likewise, as far as their memory goes. What looks best is built and priced by `sim.analytic.evaluator`.
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
"""Orders of the clusters along a line that are tried: all of three."""
SHORT = 8
"""Longer pipelines of replicas that keep to one cluster are tried only where their places divide the layers."""
LAID = 24
"""Layouts whose messages and gradients are reckoned under every schedule, the best by compute first."""
PLAYABLE = 1_000
"""Places times microbatches, above which a plan is not tried: where nothing repeats the engine takes too long."""
RANKS = 6_000
"""Ranks of the plans that are built, in all; at least two plans."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Stages somewhere on the fleet, their layers, the microbatches of each replica, and predicted seconds of a step."""

    seconds: float
    shape: Shape
    stands: tuple[StageSlots, ...]
    layers: tuple[int, ...]
    microbatches: tuple[int, ...]


def mixed(
    context: PlanningContext, strategy: str, below: float = math.inf, deadline: float = math.inf
) -> list[tuple[float, Plan]]:
    """Plans with mixed stages that fit and might take less than `below` seconds, each with its step on an idle network.

    The fastest first; of plans that stand alike only the best. Beyond the deadline, a time of `time.monotonic`, no more are
    looked for than one.
    """
    request = context.request
    costs, work = MixedStageCosts(context), Work(context)
    able = (place for place in layouts(request, every_size=False) if work.bound(place[0]) < below)
    places = itertools.takewhile(lambda _: time.monotonic() < deadline, able)
    laid = ((layout, place) for place in places for layout in _laid(costs, splitting(place[0]), place[1], False))
    rough = ((layout.seconds, place) for layout, place in laid if layout.seconds < below)
    best = shortlist(rough, lambda place: _whole(costs, *place), LAID, deadline)
    found = [
        layout
        for one in best
        for variant in _schedules(request, replace(one.shape, schedule=request.wishes.schedule or "1f1b"))
        for layout in _laid(costs, variant, one.stands, True)
    ]
    found = sorted((layout for layout in found if layout.seconds < below), key=lambda layout: layout.seconds)
    priced: list[tuple[float, Plan]] = []
    ranks = 0
    for layout in found:
        size = layout.shape.tp * layout.shape.slots * len(layout.stands)
        if len(layout.stands) * max(layout.microbatches) > PLAYABLE:
            continue
        if (ranks + size > RANKS and len(priced) >= 2) or (priced and time.monotonic() > deadline):
            break
        ranks += size
        with suppress(PlanError):
            placed = devices(layout.stands, layout.shape.tp)
            plan = assemble(request, layout.shape, layout.layers, placed, strategy, layout.microbatches)
            if fits(plan):
                priced.append((float(evaluate([plan])[0]), plan))
    unlike: dict[tuple[Device, ...], tuple[float, Plan]] = {}
    for seconds, plan in sorted(priced, key=lambda pair: pair[0]):
        unlike.setdefault(plan.placement, (seconds, plan))
    return list(unlike.values())


def is_mixed(plan: Plan) -> bool:
    """Whether the replicas of some stage stand on several clusters."""
    width = plan.config.tp * plan.config.dp_cp
    return any(
        len({device.cluster for device in plan.placement[first : first + width]}) > 1
        for first in range(0, len(plan.placement), width)
    )


def layouts(request: Request, every_size: bool = True) -> Iterator[tuple[Shape, tuple[StageSlots, ...]]]:
    """Where the stages of plans with mixed stages may stand: on lines, or each replica on one cluster. None for one cluster.

    With every microbatch size that divides a replica's batch, or with the usual ones."""
    if len(list(request.clusters())) > 1:
        shapes = tuple(searched(request, across=True, every_size=every_size))
        yield from itertools.chain(_on_lines(request, shapes), _by_replica(request, shapes))


def _schedules(request: Request, shape: Shape) -> Iterator[Shape]:
    for variant in variants(request, shape):
        uneven = schedules.get(variant.schedule).CHUNKED or variant.zero_stage > 1  # replicas may differ in microbatches
        if not uneven:
            yield variant


def _on_lines(request: Request, shapes: tuple[Shape, ...]) -> Iterator[tuple[Shape, tuple[StageSlots, ...]]]:
    clusters, layers, pinned = list(request.clusters()), request.workload.model.layers, request.wishes.pp
    for shape in shapes:
        for order in itertools.islice(itertools.permutations(clusters), ORDERS):
            stands = cut(order, shape.tp, shape.slots, pinned or layers)
            if any(len(stand) > 1 for stand in stands) and pinned in (None, len(stands)):
                yield shape, stands


def _by_replica(request: Request, shapes: tuple[Shape, ...]) -> Iterator[tuple[Shape, tuple[StageSlots, ...]]]:
    """Every replica on one cluster; dp follows from how many pipelines of pp places there is room for."""
    clusters, layers, wishes = list(request.clusters()), request.workload.model.layers, request.wishes
    seen: set[tuple[Shape, int]] = set()
    for shape in shapes:
        room = [slots(cluster, shape.tp) // shape.cp for cluster in clusters]
        lengths = (pp for pp in range(1, min(layers, max(room)) + 1) if pp <= SHORT or layers % pp == 0)
        for pp in [wishes.pp] if wishes.pp else lengths:
            replicas = [count // pp for count in room]
            dp = sum(replicas)
            total = request.workload.global_batch_size // shape.microbatch_size
            one = replace(shape, dp=dp)
            if sum(map(bool, replicas)) < 2 or (one, pp) in seen or dp > total or wishes.dp not in (None, dp):
                continue
            seen.add((one, pp))
            if dp * shape.cp % shape.ep or dp * shape.cp % (shape.zero_shard_size or 1):
                continue
            yield one, tuple(_columns(clusters, replicas, shape.cp, place) for place in range(pp))


def _columns(clusters: Iterable[Cluster], replicas: list[int], cp: int, place: int) -> StageSlots:
    counts = zip(clusters, replicas, strict=True)
    return tuple(Run(cluster, place * count * cp, count * cp) for cluster, count in counts if count)


def _whole(costs: MixedStageCosts, shape: Shape, stands: tuple[StageSlots, ...]) -> list[Layout]:
    """A layout with its whole step; where weight gradients that wait lack memory, under one without them."""
    return list(_laid(costs, splitting(shape), stands, True)) or list(_laid(costs, shape, stands, True))


def _laid(costs: MixedStageCosts, shape: Shape, stands: tuple[StageSlots, ...], whole: bool) -> Iterator[Layout]:
    """Layers and microbatches on given stages; by compute alone, memory left out, unless the `whole` step is asked for."""
    workload, pp = costs.workload, len(stands)
    total = workload.global_batch_size // shape.microbatch_size
    with suppress(PlanError):
        even = max(total // shape.dp, 1)
        most = [costs.most(shape, stand, i, pp, even) if whole else workload.model.layers for i, stand in enumerate(stands)]
        ends = [(i == 0, i == pp - 1) for i in range(pp)]
        lines = [costs.line_seconds(shape, stand, end) for stand, end in zip(stands, ends, strict=True)]
        layers = level(lines, most, workload.model.layers, 1)
        if layers is None:
            return
        groups = replicas(stands, shape.cp)
        slots = [
            max(s + k * c for k, (s, c) in zip(layers, _lines_of(costs, shape, group, ends), strict=True)) for group in groups
        ]
        counts = [group[0].count // shape.cp for group in groups]
        microbatches = _shared(slots, counts, total)
        if not microbatches:
            return
        if sum(m * count for m, count in zip(microbatches, counts, strict=True)) != total:
            return
        per_replica = tuple(itertools.chain.from_iterable(map(itertools.repeat, microbatches, counts)))
        fill = sum(s + k * c for k, (s, c) in zip(layers, lines, strict=True))
        seconds = max(m * slot for m, slot in zip(microbatches, slots, strict=True)) + (pp - 1) / pp * fill
        if whole:
            found = [costs.cost(shape, stand, k, end) for stand, k, end in zip(stands, layers, ends, strict=True)]
            messages = costs.messages(shape, stands)
            waits = not schedules.get(shape.schedule).OVERLAPS_SENDS
            fill = sum((cost.forward + cost.inputs) for cost in found) + sum(messages)
            slowest = max(slots) + (max(messages, default=0.0) if waits else 0.0)
            busy = max(m * (slot + slowest - max(slots)) for m, slot in zip(microbatches, slots, strict=True))
            seconds = busy + (pp - 1) / pp * fill + max(cost.tail(costs.config(shape, pp)) for cost in found)
        yield Layout(seconds, shape, stands, layers, per_replica)


def _lines_of(
    costs: MixedStageCosts, shape: Shape, group: tuple[Run, ...], ends: list[tuple[bool, bool]]
) -> list[tuple[float, float]]:
    """Seconds of a microbatch on the stages of one replica, s + k c for k layers each."""
    return [costs.own_seconds(shape, run, end) for run, end in zip(group, ends, strict=True)]


def _shared(slots: list[float], counts: list[int], total: int) -> list[int]:
    """Microbatches of each replica of a group, so that the last is done soonest; all groups as one if they are as fast.

    Replicas of a group have equally many; what is left goes, group by group, to those done soonest. Empty where it cannot be.
    """
    share = _early(slots, counts, total)
    left = total - sum(count * given for count, given in zip(counts, share, strict=True))
    while left > 0:
        able = [i for i, count in enumerate(counts) if count <= left]
        if not able:
            return []
        best = min(able, key=lambda i: (share[i] + 1) * slots[i])
        share[best] += 1
        left -= counts[best]
    return share if left == 0 else []


def _early(slots: list[float], counts: list[int], total: int) -> list[int]:
    """What every replica of each group has been given at a time when there is enough left for any group; at least 1."""
    seconds = (total - 2 * max(counts)) / sum(count / slot for count, slot in zip(counts, slots, strict=True))
    share = []
    for slot in slots:
        given = max(int(seconds / slot) - 1, 1)
        while (given + 1) * slot <= seconds:
            given += 1
        share.append(given)
    left = total - sum(count * given for count, given in zip(counts, share, strict=True))
    return share if left >= max(counts) else [1] * len(slots)
