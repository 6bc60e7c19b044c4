"""Topologies that differ in names of equal clusters only: what is found for one holds for the others.

Two sites of equal nodes are such clusters: four more nodes at either give the same plans, with the names exchanged."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace

from holmes_sim import requirements
from sim.hardware.cluster import Cluster, Fleet
from sim.hardware.topology import Topology

MOST = 5040
"""Most assignments of clusters to equal ones that are tried (7 factorial). Guess; more find more equal fleets, later."""


def representatives(topologies: Sequence[Topology]) -> tuple[int, ...]:
    """For each topology, the index of the first one that it equals but for names of clusters."""
    found: list[int] = []
    for index, one in enumerate(topologies):
        firsts = dict.fromkeys(found)
        found.append(next((first for first in firsts if _is_equal(topologies[first], one)), index))
    return tuple(found)


def _is_equal(one: Topology, other: Topology) -> bool:
    if _nameless(one) != _nameless(other):
        return False
    wanted = _links(other.fleet, {})
    return any(_links(one.fleet, names) == wanted for names in itertools.islice(_assignments(one, other), MOST))


def _nameless(where: Topology) -> Hashable:
    """What equal topologies have in common whatever their clusters' names: all but the links between clusters.

    Requirements with the name of a cluster keep all names."""
    fleet, needs = where.fleet, json.dumps(requirements.written(where), sort_keys=True)
    clusters = Counter(map(_own, fleet.clusters))
    named = fleet.clusters if any(cluster.name in needs for cluster in fleet.clusters) else ()
    return where.workload, where.stack, where.memory_headroom, fleet.communicator, needs, named, frozenset(clusters.items())


def _own(cluster: Cluster) -> Hashable:
    """A cluster without its name and the names of its hosts, with prices, which clusters do not compare."""
    prices = (cluster.node.device.price, *(nic.price for nic in cluster.node.nics))
    return replace(cluster, name="", hosts=()), prices


def _assignments(one: Topology, other: Topology) -> Iterator[Mapping[str, str]]:
    """Names of the clusters of one topology -> names of equal clusters of the other."""
    groups: dict[Hashable, tuple[list[str], list[str]]] = {}
    for index, where in enumerate((one, other)):
        for cluster in where.fleet.clusters:
            groups.setdefault(_own(cluster), ([], []))[index].append(cluster.name)
    orders = [
        [tuple(zip(ours, order, strict=True)) for order in itertools.islice(itertools.permutations(to), MOST)]
        for ours, to in groups.values()
    ]
    for pairs in itertools.product(*orders):
        yield dict(itertools.chain.from_iterable(pairs))


def _links(fleet: Fleet, names: Mapping[str, str]) -> Counter[Hashable]:
    """The links between clusters, with other names of clusters, in any order."""
    return Counter(
        (frozenset(names.get(end, end) for end in trunk.between), replace(trunk, between=("", "")), trunk.price)
        for trunk in fleet.trunks
    )
