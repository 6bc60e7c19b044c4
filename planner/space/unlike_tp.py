"""Shapes whose tensor-parallel degree differs between device types: devices with less memory hold a stage in more parts.

The device types of a fleet are ordered by memory, those with most first, and of equal memory by speed. One degree is for the
first types, and a larger one for all others. So there are as many such shapes as pairs of degrees, times one less than the
types. A degree of its own for every type would give far more shapes; a fleet of two types has no others."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace

from planner.request import Request
from planner.space import runnable
from planner.space.device_slots import types
from planner.space.shape import Shape
from planner.space.shapes import stage_slots
from sim.hardware.cluster import Cluster


def unlike_shapes(request: Request, shapes: Iterable[Shape]) -> Iterator[Shape]:
    """The searched shapes of unlike degrees that are made from `shapes`, which have one degree each: the larger one stays.

    None where tp is pinned, with cp or ep, where ZeRO shards among part of the replicas, or where dp does not divide the
    batch. A shape needs a stage of either degree, on clusters whose limits allow it."""
    every, known = list(shapes), dict[tuple[str, int], bool]()
    ordered = _by_memory(request)
    if request.wishes.tp is not None or len(ordered) < 2:
        return
    degrees = sorted({shape.tp for shape in every})
    for shape in every:
        if shape.cp > 1 or shape.ep > 1 or shape.zero_shard_size is not None or not shape.divides(request.workload):
            continue
        for low in degrees[: degrees.index(shape.tp)]:
            for many in range(1, len(ordered)):
                first, others = (list(itertools.chain.from_iterable(part)) for part in (ordered[:many], ordered[many:]))
                found = replace(shape, cluster_tp=tuple((one.name, low) for one in first))
                if shape.tp % low == 0 and all(any(_holds(request, one, found) for one in part) for part in (first, others)):
                    key = shape.schedule, shape.tp
                    if key not in known:
                        known[key] = not runnable.fault(request, found)
                    if known[key]:
                        yield found


def device_types(request: Request) -> tuple[str, ...]:
    """Names of the device types in their order: the smaller tensor-parallel degree is on the first ones."""
    return tuple(clusters[0].node.device.name for clusters in _by_memory(request))


def _by_memory(request: Request) -> list[list[Cluster]]:
    """The clusters of every device type, that with most memory first; of equal memory, the fastest first."""
    precision = request.workload.precision
    ordered = sorted(types(request).items(), key=lambda pair: (-pair[0].memory, -pair[0].peak_of(precision)))
    return [clusters for _, clusters in ordered]


def _holds(request: Request, cluster: Cluster, shape: Shape) -> bool:
    able = cluster.node.count >= shape.tp_on(cluster.name) and stage_slots(cluster, shape) >= shape.slots
    return able and request.limits.allows_on(cluster.name, shape.on(cluster.name))
