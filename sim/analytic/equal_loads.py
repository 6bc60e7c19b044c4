"""Replicas that keep step: at every stage, NICs, links between CPUs and leaf switches of each are loaded alike.

Messages of such replicas begin and end together, so they share links from the first microbatch to the last. Of three devices
with two NICs, two share one of them: their messages take longer than that of the third one, whose replica runs ahead from then
on, and finds other links free, too.

Replicas are split by their loads until all of a class have equal ones (colour refinement): a replica of another class loads
nothing, which is a relaxation."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from sim.hardware.cluster import Cluster, Device, Fleet
from sim.network.paths import near_nics

Link: TypeAlias = tuple[str, int, str, int]
"""(cluster, node or leaf, kind of link, number of the link there)."""


def equally_loading(
    fleet: Fleet, replicas: Sequence[int], devices: Mapping[int, Sequence[tuple[Device, ...]]]
) -> Iterator[tuple[int, ...]]:
    """Classes of replicas with equal loads, if no replica of another class loads anything.

    devices: those of each replica, by pipeline rank."""
    left = [list(replicas)]
    while left:
        some = left.pop()
        parts: dict[object, list[int]] = {}
        stages = zip(*(devices[one] for one in some), strict=True) if len(some) > 1 else ()
        loads = [_loads(fleet, stage) for stage in stages if not _fill_nodes(fleet, stage)]
        for index, one in enumerate(some):
            parts.setdefault(tuple(load[index] for load in loads), []).append(one)
        if len(parts) == 1:
            yield tuple(some)
        else:
            left += parts.values()


def _loads(fleet: Fleet, stage: Sequence[tuple[Device, ...]]) -> list[object]:
    """The kinds of links that the devices of each replica load at a stage, and how many devices load each."""
    links = [[_links(fleet, device) for device in devices] for devices in stage]
    load = Counter(link for devices in links for found in devices for link in found)
    return [tuple(tuple((link[2], load[link]) for link in found) for found in devices) for devices in links]


def _fill_nodes(fleet: Fleet, stages: Sequence[tuple[Device, ...]]) -> bool:
    """Whether the devices of the replicas at a stage, each inside a node, are all those of nodes with equal links."""
    nodes = {(devices[0].cluster, devices[0].node) for devices in stages}
    clusters = [fleet.cluster(name) for name, _ in nodes]
    return sum(cluster.node.count for cluster in clusters) == sum(map(len, stages)) and all(map(_is_even, clusters))


def leaf(fleet: Fleet, device: Device) -> int:
    """Number of the leaf switch of a device in its cluster, where traffic between leaves is slower; else 0."""
    fabric = fleet.cluster(device.cluster).fabric
    return device.node // fabric.nodes_per_leaf if fabric is not None and fabric.is_narrow else 0


def _links(fleet: Fleet, device: Device) -> list[Link]:
    """What messages of a device load beside its own links."""
    name, node = device.cluster, device.node
    return [(name, node, *link) for link in _on_node(fleet.cluster(name), device.index)] + [
        (name, leaf(fleet, device), "leaf", 0)
    ]


@functools.lru_cache(maxsize=4096)
def _is_even(cluster: Cluster) -> bool:
    """Whether all devices of a node load links alike where all send at the same time, below one leaf or a wide spine."""
    if cluster.fabric is not None and cluster.fabric.is_narrow:
        return False
    every = [_on_node(cluster, index) for index in range(cluster.node.count)]
    shared = Counter(link for links in every for link in links)
    return len({tuple((kind, shared[kind, number]) for kind, number in links) for links in every}) == 1


@functools.lru_cache(maxsize=4096)
def _on_node(cluster: Cluster, index: int) -> tuple[tuple[str, int], ...]:
    """Kind and number of the NICs of each type that are near to a device, and of the link between CPUs where messages to NICs
    of a type cross it."""
    node = cluster.node
    counts = sorted({nic.count for nic in node.nics})  # of two types of equally many, one suffices
    near = [(f"{count} nics", number) for count in counts for number in near_nics(node.count, count, index)]
    others = {nic.kind for nic in node.nics if node.socket_link and nic.socket not in (None, node.socket(index))}
    return *near, *((f"socket to {kind}", 0) for kind in sorted(others))
