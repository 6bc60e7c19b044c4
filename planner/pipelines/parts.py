"""Parts of a fleet: how many nodes of each cluster a column of the master programme takes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TypeAlias

from planner.request import Request
from sim.hardware.cluster import Cluster

Part: TypeAlias = tuple[int, ...]
"""Nodes of each cluster of a request, in the order of `Request.clusters`."""
MOST_PARTS = 256
"""Most parts that are searched (a guess): the master programme has a variable for each."""
EACH = 4
"""Nodes of a cluster up to which each number of them is tried; of larger clusters powers of two and all (a guess)."""


def parts(request: Request) -> list[Part]:
    """All parts but the empty one and the whole fleet, the smallest first.

    Where there are more than `MOST_PARTS`, those of one cluster, and whole clusters together, few clusters first; none where
    those of one cluster are too many."""
    clusters = list(request.clusters())
    numbers = [_numbers(cluster) for cluster in clusters]
    whole = tuple(cluster.nodes for cluster in clusters)
    every = itertools.product(*numbers) if math.prod(map(len, numbers)) <= MOST_PARTS else _simple(numbers)
    return sorted((part for part in every if any(part) and part != whole), key=lambda part: (peak(request, part), part))


def _simple(numbers: Sequence[Sequence[int]]) -> list[Part]:
    """Numbers of nodes of one cluster, then all nodes of two clusters, of three and so on, as long as they are few."""
    found = [
        tuple(many if one == cluster else 0 for one in range(len(numbers)))
        for cluster, own in enumerate(numbers)
        for many in own[1:]
    ]
    if len(found) > MOST_PARTS:
        return []
    for size in range(2, len(numbers)):
        chosen = [set(some) for some in itertools.combinations(range(len(numbers)), size)]
        if len(found) + len(chosen) > MOST_PARTS:
            break
        found += [tuple(own[-1] if one in some else 0 for one, own in enumerate(numbers)) for some in chosen]
    return found


def _numbers(cluster: Cluster) -> list[int]:
    """Numbers of nodes of a cluster that a part may have."""
    if cluster.nodes <= EACH:
        return list(range(cluster.nodes + 1))
    powers = itertools.takewhile(lambda number: number < cluster.nodes, (1 << power for power in itertools.count()))
    return [0, *powers, cluster.nodes]


def peak(request: Request, part: Part) -> float:
    """FLOP/s of all devices of a part."""
    pairs, precision = zip(request.clusters(), part, strict=True), request.workload.precision
    return sum(number * cluster.node.count * cluster.node.device.peak_of(precision) for cluster, number in pairs)
