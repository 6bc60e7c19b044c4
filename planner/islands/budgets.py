"""Limits of islands: what holds for each of them, and how a budget of devices or rent is divided among them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from planner.islands.node_ranges import Partition, clusters_of
from planner.limits import Limits, node_rent
from planner.request import Request
from sim.errors import OptionError
from sim.hardware.cluster import Cluster


def inside(limits: Limits) -> Limits:
    """The limits of one island: without those of cost and days, which hold for all islands together."""
    return replace(limits, cost=None, training=None)


def check_limits(limits: Limits) -> None:
    """Raise OptionError for limits that islands cannot have."""
    for name, cluster in (("first_stage", limits.first), ("last_stage", limits.last)):
        if cluster:
            raise OptionError(
                f"require.{name} {cluster}: each island has a {name.replace('_', ' ')} of its own; leave it out with --sync"
            )
    for number, cluster in limits.stages:
        raise OptionError(
            f"require.stages, stage {number} on {cluster}: each island has stages of its own; leave it out with --sync"
        )
    if limits.ranks is not None:
        raise OptionError(f"require.ranks, {limits.ranks}: islands divide the devices anew; leave it out with --sync")
    for cluster, allowed in limits.nodes:
        raise OptionError(f"require.clusters.{cluster}.nodes {allowed}: islands use all nodes; leave it out with --sync")


def divisions(request: Request, partition: Partition) -> list[tuple[Limits, ...]]:
    """Ways to divide the devices and the rent of a request among islands, as limits of each; one way without such limits, or
    where the islands are within them. None where some island gets nothing in every way.

    Three are tried (a guess; other divisions may be better): in proportion to the devices of the islands; in whole nodes, one
    after the other to the island with the smallest part of its own; and in whole nodes, those of most FLOP/s for a device, or
    for its price, first."""
    limits = inside(request.limits)
    islands = [clusters_of(request, names) for names in partition]
    if _is_within(limits, [(cluster, cluster.nodes) for clusters in islands for cluster in clusters]):
        return [(limits,) * len(partition)]
    even, values = _even(limits, islands), [(cluster, _value(request, cluster)) for one in islands for cluster in one]
    by_value = [cluster for cluster, _ in sorted(values, key=lambda pair: -pair[1])]
    found = [even, _of_nodes(limits, islands, _levelled(limits, islands)), _of_nodes(limits, islands, _first(limits, by_value))]
    return list(dict.fromkeys(way for way in found if all(one.devices != 0 for one in way)))


def _even(limits: Limits, islands: list[list[Cluster]]) -> tuple[Limits, ...]:
    """Limits in proportion to the devices of the islands, and to their rent."""
    devices = [sum(cluster.devices for cluster in clusters) for clusters in islands]
    most = [None if limits.devices is None else limits.devices * own // sum(devices) for own in devices]
    if limits.rent is None:
        return tuple(replace(limits, devices=own) for own in most)
    rents = [sum(cluster.nodes * node_rent(cluster) for cluster in clusters) for clusters in islands]
    shares = [limits.rent * own / sum(rents) for own in rents]
    return tuple(replace(limits, devices=own, rent=rent) for own, rent in zip(most, shares, strict=True))


Nodes = dict[str, int]
"""Number of nodes by cluster."""


def _of_nodes(limits: Limits, islands: list[list[Cluster]], nodes: Nodes) -> tuple[Limits, ...]:
    """Limits that allow each island its nodes."""
    found = []
    for clusters in islands:
        devices = sum(nodes.get(cluster.name, 0) * cluster.node.count for cluster in clusters)
        rent = None if limits.rent is None else sum(nodes.get(cluster.name, 0) * node_rent(cluster) for cluster in clusters)
        found.append(replace(limits, devices=devices, rent=rent))
    return tuple(found)


def _levelled(limits: Limits, islands: list[list[Cluster]]) -> Nodes:
    """Nodes, one after the other to the island that has the smallest part of its own, while they are within the limits."""
    taken: Nodes = {cluster.name: 0 for clusters in islands for cluster in clusters}

    def part(index: int) -> float:
        return sum(taken[one.name] * one.node.count for one in islands[index]) / sum(one.devices for one in islands[index])

    every = [cluster for clusters in islands for cluster in clusters]
    while True:
        for index in sorted(range(len(islands)), key=part):
            fitting = next(_next_nodes(limits, every, islands[index], taken), None)
            if fitting is not None:
                taken[fitting] += 1
                break
        else:
            return taken


def _first(limits: Limits, every: list[Cluster]) -> Nodes:
    """Nodes of clusters, all that are within the limits of the first one, then of the next."""
    taken: Nodes = {cluster.name: 0 for cluster in every}
    for cluster in every:
        while next(_next_nodes(limits, every, [cluster], taken), None) is not None:
            taken[cluster.name] += 1
    return taken


def _next_nodes(limits: Limits, every: list[Cluster], of: Iterable[Cluster], taken: Nodes) -> Iterator[str]:
    """Clusters of which one more node is within the limits."""
    for cluster in of:
        more = taken | {cluster.name: taken[cluster.name] + 1}
        if taken[cluster.name] < cluster.nodes and _is_within(limits, [(one, more[one.name]) for one in every]):
            yield cluster.name


def _is_within(limits: Limits, nodes: list[tuple[Cluster, int]]) -> bool:
    """Whether the devices and the rent of some nodes are within the limits."""
    devices = sum(count * cluster.node.count for cluster, count in nodes)
    if limits.devices is not None and devices > limits.devices:
        return False
    return limits.rent is None or sum(count * node_rent(cluster) for cluster, count in nodes) <= limits.rent * (1 + 1e-12)


def _value(request: Request, cluster: Cluster) -> float:
    """FLOP/s of a device, for its price where the rent is limited."""
    device = cluster.node.device
    return device.peak_of(request.workload.precision) / (device.price or 1.0 if request.limits.rent is not None else 1.0)
