"""Rings of ranks as arrays: where ranks are in the cluster, and the transfers of collectives over rings of many ranks.

Transfers between equivalent ranks get equal kinds (a hash): they use equivalent links with equal weights and latencies. So the
cost of a collective over any number of ranks follows from one transfer of each kind (`sim.network.gradient_routes`)."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sim import collectives
from sim.hardware.link_spec import LinkSpec
from sim.network.hashes import Hashes, hash_arrays
from sim.network.protocols import link_specs
from sim.plan.plan import Plan

Integers: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]


class Sites:
    """Location of every rank, as arrays over ranks: cluster, node (numbered through all clusters), index on it, leaf switch.

    In a cluster without a fabric every node counts as a leaf of its own: nodes share no links.
    """

    def __init__(self, plan: Plan):
        number = {cluster.name: index for index, cluster in enumerate(plan.fleet.clusters)}
        self.cluster = np.array([number[device.cluster] for device in plan.placement])
        self.index = np.array([device.index for device in plan.placement])
        on_cluster = np.array([device.node for device in plan.placement])
        nodes = np.array([cluster.nodes for cluster in plan.fleet.clusters])
        per_leaf = np.array([c.fabric.nodes_per_leaf if c.fabric else 1 for c in plan.fleet.clusters])
        self.node = _starts(nodes)[self.cluster] + on_cluster
        self.leaf = _starts(-(-nodes // per_leaf))[self.cluster] + on_cluster // per_leaf[self.cluster]
        self._rings: dict[tuple[bytes, int], tuple[tuple[Ring, Integers], ...]] = {}

    def rings(self, rows: Integers) -> tuple[tuple[Ring, Integers], ...]:
        """(rings, their row numbers) of rings that run side by side; each row of `rows` is the ranks of one in ring order.

        Rings with the same number of ranks on each host, host by host, are one `Ring`. Cached.
        """
        key = rows.tobytes(), len(rows)
        if key not in self._rings:
            self._rings[key] = tuple(self._grouped(rows))
        return self._rings[key]

    def _grouped(self, rows: Integers) -> Iterator[tuple[Ring, Integers]]:
        together = Ring(self, rows)
        patterns: dict[tuple[int, ...], list[int]] = {}
        for index, pattern in enumerate(together.patterns()):
            patterns.setdefault(pattern, []).append(index)
        for members in patterns.values():
            yield (together if len(patterns) == 1 else Ring(self, rows[members])), np.array(members)


@dataclass(frozen=True, slots=True)
class RingRound:
    """One round of a collective on rings: transfers (`sim.collectives.Transfer`) as arrays; ends are positions in `Ring.ranks`.

    Transfers of equal `kind` are between equivalent ranks: over equivalent links, with equal weights and latencies.
    """

    source: Integers
    target: Integers
    share: Floats
    steps: Floats
    kind: Hashes
    repeats: int


class Ring:
    """The ranks of `many` rings with the same number of ranks on each host, host by host as in `sim.collectives`.

    Rings follow one another in `ranks` (`length` each); `pattern` is the number of ranks on each host of a ring."""

    def __init__(self, sites: Sites, rows: Integers):
        self.many, self.length = rows.shape
        node = sites.node[rows] + np.arange(self.many)[:, None] * (int(sites.node.max()) + 1)
        _, first, host, sizes = np.unique(node.ravel(), return_index=True, return_inverse=True, return_counts=True)
        order = np.argsort(first)
        host = np.argsort(order)[host]
        by_host = np.argsort(host, kind="stable")
        self.sites, self.ranks, self.host, self.sizes = sites, rows.ravel()[by_host], host[by_host], sizes[order]
        self.starts = _starts(self.sizes)
        self.pattern = tuple(self.sizes[: int(np.searchsorted(self.starts, self.length))].tolist())
        self._rounds: dict[tuple[str, str], tuple[RingRound, ...]] = {}

    def patterns(self) -> Iterator[tuple[int, ...]]:
        """Number of ranks on each host, ring by ring."""
        hosts = np.searchsorted(self.starts, np.arange(self.many + 1) * self.length)
        sizes = self.sizes.tolist()
        return (tuple(sizes[first:past]) for first, past in itertools.pairwise(hosts.tolist()))

    def near(self, position: int) -> tuple[int, ...]:
        """Indices on its node of all members that share the host of the member at a position."""
        host = self.host[position]
        first = self.starts[host]
        return tuple(self.sites.index[self.ranks[first : first + self.sizes[host]]].tolist())

    def rounds(self, collective: str, operation: str) -> tuple[RingRound, ...]:
        """Rounds of a collective. Cached."""
        key = (collective, operation)
        if key not in self._rounds:
            self._rounds[key] = tuple(self._made_rounds(collective, operation))
        return self._rounds[key]

    def _made_rounds(self, collective: str, operation: str) -> Iterator[RingRound]:
        index, cluster, leaf = self.sites.index[self.ranks], self.sites.cluster[self.ranks], self.sites.leaf[self.ranks]
        members = np.add.reduceat(hash_arrays(index), self.starts)[self.host]
        here = hash_arrays(cluster, index, members, self.sizes[self.host])
        firsts = np.arange(self.many)[:, None] * self.length
        for source, target, share, steps, repeats in _transfers(collective, operation, self.pattern):
            a, b = (firsts + source).ravel(), (firsts + target).ravel()
            near = 2 * (self.host[a] == self.host[b]) + (leaf[a] == leaf[b])
            kind = hash_arrays(here[a], here[b], near)
            yield RingRound(a, b, np.tile(share, self.many), np.tile(steps, self.many), kind, repeats)

    def num_rounds(self, collective: str, operation: str) -> int:
        """Number of rounds of a collective."""
        return len(_transfers(collective, operation, self.pattern))

    @property
    def on_one_host(self) -> bool:
        """Whether each ring has one host only."""
        return bool(len(self.sizes) == self.many)

    def links(self, plan: Plan, row: int, nic: str) -> Iterator[LinkSpec]:
        """Every interconnect and NIC type that ring number `row` may use."""
        mine = slice(row * len(self.pattern), (row + 1) * len(self.pattern))
        hosts = np.unique(2 * self.sites.cluster[self.ranks[self.starts[mine]]] + (self.sizes[mine] > 1)).tolist()
        named = ((plan.fleet.clusters[host // 2].name, bool(host % 2)) for host in hosts)
        return link_specs(plan.fleet, named, "" if self.on_one_host else nic)


def _starts(sizes: Integers) -> Integers:
    """Start of each of several consecutive runs of given sizes."""
    return np.concatenate(([0], np.cumsum(sizes)[:-1]))


@functools.lru_cache(maxsize=256)
def _transfers(
    collective: str, operation: str, sizes: tuple[int, ...]
) -> tuple[tuple[Integers, Integers, Floats, Floats, int], ...]:
    """Rounds of a collective over hosts of `sizes` ranks: (source, target, share, steps as arrays over transfers, repeats)."""
    starts = _starts(np.array(sizes)).tolist()
    hosts = tuple(tuple(range(first, first + size)) for first, size in zip(starts, sizes, strict=True))
    rounds = []
    for one in collectives.rounds(collective, operation, hosts):
        rows = np.array([(t.source, t.target, t.share, t.steps) for t in one.transfers])
        rounds.append((rows[:, 0].astype(np.int64), rows[:, 1].astype(np.int64), rows[:, 2], rows[:, 3], one.repeats))
    return tuple(rounds)
