"""Shapes whose tensor-parallel degree differs between device types: devices with less memory hold a stage in more parts.

The device types of a fleet are ordered by memory and cut in two where memory falls most, as a ratio. The types with more memory
have one degree, the others a larger one. So there are as many such shapes as pairs of degrees. More cuts, or a degree of its
own for every type, would give far more shapes; where all types have as much memory, and on large fleets, there are none."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace

from planner.request import Request
from planner.space import runnable
from planner.space.device_slots import types
from planner.space.sequences_and_experts import context_degrees
from planner.space.shape import Shape
from planner.space.shapes import stage_slots
from sim.hardware.cluster import Cluster
from sim.plan.plan import Plan

MOST_DEVICES = 256
"""Devices of a fleet up to which such shapes are searched (a guess): 1,024 devices took half as long again with them, and had
the same plan."""


def unlike_shapes(request: Request, shapes: Iterable[Shape]) -> Iterator[Shape]:
    """The searched shapes of unlike degrees that are made from `shapes`, which have one degree each: the larger one stays.

    None where tp is pinned, with cp or ep, where ZeRO shards among part of the replicas, where dp does not divide the batch,
    or above `MOST_DEVICES`. A shape needs a stage of either degree, on clusters whose limits allow it."""
    every, known = list(shapes), dict[tuple[str, int], bool]()
    ample, scarce = by_memory(request)
    if request.wishes.tp is not None or not scarce or sum(one.devices for one in (*ample, *scarce)) > MOST_DEVICES:
        return
    degrees = sorted({shape.tp for shape in every})
    for shape in every:
        if shape.further_degrees or shape.zero_shard_size is not None or not shape.divides(request.workload):
            continue
        for low in degrees[: degrees.index(shape.tp)]:
            found = replace(shape, cluster_tp=tuple((one.name, low) for one in ample))
            if shape.tp % low == 0 and all(any(_holds(request, one, found) for one in part) for part in (ample, scarce)):
                key = shape.schedule, shape.tp
                if key not in known:
                    known[key] = not runnable.fault(request, found)
                if known[key]:
                    yield found


def by_memory(request: Request) -> tuple[list[Cluster], list[Cluster]]:
    """The clusters of the device types with more memory, and of those with less; none of the latter if all have as much."""
    ordered = sorted(types(request).items(), key=lambda pair: -pair[0].memory)
    falls = [larger.memory / smaller.memory for (larger, _), (smaller, _) in itertools.pairwise(ordered)]
    cut = falls.index(max(falls)) + 1 if max(falls, default=1.0) > 1.0 else len(ordered)
    ample, scarce = ([cluster for _, clusters in part for cluster in clusters] for part in (ordered[:cut], ordered[cut:]))
    return ample, scarce


def has_searched_degrees(request: Request, plan: Plan) -> bool:
    """Whether a plan without mixed stages has a searched cp, offload and recomputation, and stages that differ in tp as those
    of a searched shape may, and not in dp."""
    config = plan.config
    if config.cp not in context_degrees(request) or set(config.offload) != set(request.wishes.offloaded):
        return False
    if config.recompute_modules or config.stage_recompute or config.stage_cp or config.stage_ep or config.stage_etp:
        return False
    if not config.stage_tp or config.stage_dp:
        return not config.stage_dp
    names = [plan.placement[config.first_rank(pp_rank)].cluster for pp_rank in range(config.pp)]
    ample, scarce = ({tp for tp, name in zip(config.degrees, names, strict=True) if name in part} for part in _names(request))
    return len(ample) == len(scarce) == 1 and max(ample) < max(scarce)


def _names(request: Request) -> tuple[set[str], ...]:
    return tuple({cluster.name for cluster in part} for part in by_memory(request))


def _holds(request: Request, cluster: Cluster, shape: Shape) -> bool:
    able = cluster.node.count >= shape.tp_on(cluster.name) and stage_slots(cluster, shape) >= shape.slots
    return able and request.limits.allows_on(cluster.name, shape.on(cluster.name))
