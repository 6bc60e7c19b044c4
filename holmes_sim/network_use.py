"""Which NICs and links between clusters plans can use: those of the transport that some group of clusters communicates over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from sim.errors import NoRoute
from sim.hardware.cluster import Device, Fleet, Trunk
from sim.hardware.transport import common_transport, trunk_path

MOST_CLUSTERS = 6
"""Largest number of clusters of which all groups are examined (a guess: 57 groups of six); of more, pairs and all of them."""


@dataclass(frozen=True, slots=True)
class NetworkUse:
    """(cluster, NIC type) pairs and links that plans can use."""

    nics: frozenset[tuple[str, str]]
    trunks: frozenset[Trunk]


def network_use(fleet: Fleet) -> NetworkUse:
    """The NIC types and links that some communication group of a plan would use."""
    nics: set[tuple[str, str]] = set()
    trunks: set[Trunk] = set()
    for names in _groups(fleet):
        kind = chosen(fleet, names)
        nics.update((name, kind) for name in names if kind)
        for a, b in combinations(names, 2) if kind else ():
            trunks.update(trunk for trunk, _ in trunk_path(fleet, a, b, kind) or ())
    return NetworkUse(frozenset(nics), frozenset(trunks))


def chosen(fleet: Fleet, names: tuple[str, ...]) -> str:
    """NIC type over which nodes of the clusters communicate; empty if nothing joins them."""
    devices = tuple(Device(name, 0, 0) for name in names)
    if len(names) == 1:
        devices = (*devices, Device(names[0], 1, 0))
    try:
        return common_transport(fleet, devices)[0]
    except NoRoute:
        return ""


def _groups(fleet: Fleet) -> Iterator[tuple[str, ...]]:
    """Clusters of several nodes alone, and groups of clusters."""
    names = tuple(cluster.name for cluster in fleet.clusters)
    yield from ((cluster.name,) for cluster in fleet.clusters if cluster.nodes > 1)
    sizes = range(2, len(names) + 1) if len(names) <= MOST_CLUSTERS else (2, len(names))
    for size in sizes:
        yield from combinations(names, size)
