"""Parts of a fleet: how many nodes of each cluster a column of the master programme takes."""

from __future__ import annotations

import itertools
import math
from typing import TypeAlias

from planner.request import Request
from sim.hardware.cluster import Cluster

Part: TypeAlias = tuple[int, ...]
"""Nodes of each cluster of a request, in the order of `Request.clusters`."""
MOST_PARTS = 256
"""Most parts of a fleet that is searched (a guess): the master programme has a variable for each."""
EACH = 4
"""Nodes of a cluster up to which each number of them is tried; of larger clusters powers of two and all (a guess)."""


def parts(request: Request) -> list[Part]:
    """All parts but the empty one and the whole fleet, the smallest first; none where there are more than `MOST_PARTS`."""
    clusters = list(request.clusters())
    numbers = [_numbers(cluster) for cluster in clusters]
    if math.prod(map(len, numbers)) > MOST_PARTS:
        return []
    whole = tuple(cluster.nodes for cluster in clusters)
    found = (part for part in itertools.product(*numbers) if any(part) and part != whole)
    return sorted(found, key=lambda part: (peak(request, part), part))


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
