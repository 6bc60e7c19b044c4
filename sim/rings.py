"""Gradient collectives of many ranks, as arrays: what passes between whom, and what of it the links of shown ranks see.

They span all replicas of a plan. Of such a ring only the transfers that touch shown nodes (`sim.symmetry`) need links by name;
of all others it is enough to know of which kind they are: transfers between alike places go over alike links, with the same
latency. So a route costs what its kinds and its shown transfers cost, however many ranks there are."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sim import collectives
from sim.cluster import LinkSpec
from sim.plan import Group, ParallelConfig, Plan
from sim.routes import Leg, LinkName, Path, Route, link_specs, path

Integers: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Hashes: TypeAlias = NDArray[np.uint64]


class Sites:
    """Where every rank stands, as arrays over ranks: cluster, node (numbered through all clusters), index on it, leaf switch.

    A cluster without a fabric has one leaf a node: nothing is shared beyond it.
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
        self._rings: dict[bytes, Ring] = {}

    def ring(self, ranks: Integers) -> Ring:
        """The ring over ranks in ring order; made once."""
        key = ranks.tobytes()
        if key not in self._rings:
            self._rings[key] = Ring(self, ranks)
        return self._rings[key]


@dataclass(frozen=True, slots=True)
class Passes:
    """One round of a collective on a ring: transfers between positions of the ring, as in `sim.collectives.Transfer`.

    Transfers of equal `kind` go between alike places: over alike links, with the same weights and latencies.
    """

    source: Integers
    target: Integers
    share: Floats
    steps: Floats
    kind: Hashes
    repeats: int


class Ring:
    """The ranks of one ring host by host, as collectives see them: `sizes` are the ranks on each host."""

    def __init__(self, sites: Sites, ranks: Integers):
        _, first, host, sizes = np.unique(sites.node[ranks], return_index=True, return_inverse=True, return_counts=True)
        order = np.argsort(first)
        host = np.argsort(order)[host]
        by_host = np.argsort(host, kind="stable")
        self.sites, self.ranks, self.host, self.sizes = sites, ranks[by_host], host[by_host], sizes[order]
        self.starts = _starts(self.sizes)
        self._passes: dict[tuple[str, str], tuple[Passes, ...]] = {}

    def near(self, position: int) -> tuple[int, ...]:
        """Indices on its node of all members that share the host of the member at a position."""
        host = self.host[position]
        first = self.starts[host]
        return tuple(self.sites.index[self.ranks[first : first + self.sizes[host]]].tolist())

    def passes(self, collective: str, operation: str) -> tuple[Passes, ...]:
        """Rounds of a collective on this ring; found once."""
        key = (collective, operation)
        if key not in self._passes:
            self._passes[key] = self._found(collective, operation)
        return self._passes[key]

    def _found(self, collective: str, operation: str) -> tuple[Passes, ...]:
        index, cluster, leaf = self.sites.index[self.ranks], self.sites.cluster[self.ranks], self.sites.leaf[self.ranks]
        members = np.add.reduceat(mixed(index), self.starts)[self.host]
        here = mixed(cluster, index, members, self.sizes[self.host])
        found = []
        for a, b, share, steps, repeats in _transfers(collective, operation, tuple(self.sizes.tolist())):
            near = 2 * (self.host[a] == self.host[b]) + (leaf[a] == leaf[b])
            found.append(Passes(a, b, share, steps, mixed(here[a], here[b], near), repeats))
        return tuple(found)

    def rounds(self, collective: str, operation: str) -> int:
        """How many rounds a collective has on this ring."""
        return len(_transfers(collective, operation, tuple(self.sizes.tolist())))

    def links(self, plan: Plan, nic: str) -> Iterable[LinkSpec]:
        """Every interconnect and NIC type that the ring may use."""
        first = self.sites.cluster[self.ranks[self.starts]]
        hosts = set(zip(first.tolist(), (self.sizes > 1).tolist(), strict=True))
        named = ((plan.fleet.clusters[cluster].name, several) for cluster, several in hosts)
        return link_specs(plan.fleet, named, nic if len(self.sizes) > 1 else "")


def gradient_operations(config: ParallelConfig) -> tuple[str, ...]:
    """Collectives that gradient groups are asked for."""
    return ("reduce_scatter", "all_gather") if config.zero_stage >= 1 else ("all_reduce",)


def gradient_parts(group: Group, operation: str, shards: int) -> tuple[tuple[tuple[Integers, ...], str, float], ...]:
    """What a gradient collective does one after the other: rings side by side, their operation, their share of the payload.

    One ring; where blocks of ranks share state, rings of blocks, then of what their ranks hold alike (`sim.routes.Member`).
    """
    ring = np.array(group.ranks)
    if group.kind != "dp" or shards == len(ring):
        return (((ring,), operation, 1.0),)
    blocks = np.sort(ring).reshape(-1, shards)
    inside = (tuple(blocks), operation, 1.0)
    return (inside,) if operation == "all_gather" else (inside, (tuple(blocks.T), "all_reduce", 1 / shards))


Home: TypeAlias = tuple[str | int, ...]
"""Node (cluster, number) or leaf ("leaf", cluster, number) that a link belongs to; () for a trunk."""


def home(link: LinkName) -> Home:
    """Where a link belongs."""
    return () if link[0] == "trunk" else ("leaf", link[1], link[3]) if link[0] == "leaf" else link[1:3]


class Shown:
    """The sites of shown ranks: which nodes by number, and which nodes and leaves by name."""

    def __init__(self, plan: Plan, sites: Sites, ranks: tuple[int, ...]):
        self.nodes = np.zeros(int(sites.node.max()) + 1, bool)
        self.nodes[sites.node[list(ranks)]] = True
        self.homes = set[Home]()
        for device in (plan.placement[rank] for rank in ranks):
            fabric = plan.fleet.cluster(device.cluster).fabric
            self.homes.add((device.cluster, device.node))
            self.homes.add(("leaf", device.cluster, device.node // fabric.nodes_per_leaf if fabric else 0))


Transfers: TypeAlias = tuple[tuple[int, int, float, float], ...]
"""(source, target, share, steps), between positions of a ring."""


class GradientRoute:
    """A gradient collective as trunks and the links of shown nodes and leaves see it, under whatever protocol."""

    def __init__(self, plan: Plan, sites: Sites, shown: Shown, group: Group, operation: str):
        self.plan, self.group, self.homes = plan, group, shown.homes
        self.parts = []
        for rows, does, scale in gradient_parts(group, operation, plan.config.shards):
            rings = [sites.ring(row) for row in rows]
            rounds = zip(*(ring.passes(group.collective, does) for ring in rings), strict=True)
            self.parts.append((rings, tuple(rounds), does, scale))
        self.transfers = {
            id(passes): (_one_of_each_kind(passes), _touching(ring, passes, shown))
            for rings, rounds, _, _ in self.parts
            for side in rounds
            for ring, passes in zip(rings, side, strict=True)
        }

    def under(self, protocol: str) -> Route:
        """Its route under a protocol: what `sim.routes.member_route` finds, without the links of copies."""
        legs: list[Leg] = []
        overhead = interference = 0.0
        for rings, rounds, operation, scale in self.parts:
            highest = 0.0
            for side in rounds:
                largest = max(float(passes.share.max()) for passes in side)
                use: dict[LinkName, float] = {}
                latest = 0.0
                for ring, passes in zip(rings, side, strict=True):
                    kinds, touching = self.transfers[id(passes)]
                    steps = [self._path(ring, transfer, operation, protocol) for transfer in kinds]
                    _add(use, kinds, steps, largest, {()})
                    _add(use, touching, [self._path(ring, t, operation, protocol) for t in touching], largest, self.homes)
                    latest = max(latest, sum(t[3] * step.latency for t, step in zip(kinds, steps, strict=True)))
                    highest = max(highest, *(step.overhead for step in steps))
                    interference = max(interference, *(step.interference for step in steps))
                legs.append(Leg(tuple(use.items()), largest * side[0].repeats * scale, latest))
            overhead += highest
        return Route(tuple(legs), overhead, interference)

    def _path(self, ring: Ring, transfer: tuple[int, int, float, float], operation: str, protocol: str) -> Path:
        a, b, _, _ = transfer
        source, target = (self.plan.placement[ring.ranks[position]] for position in (a, b))
        near = ring.near(a), ring.near(b)
        members, size = len(near[0]), len(ring.ranks)
        return path(self.plan.fleet, self.group.nic, source, target, operation, *near, members, size, protocol)


def _add(use: dict[LinkName, float], transfers: Transfers, steps: list[Path], largest: float, homes: set[Home]) -> None:
    """Add what transfers take of the links that belong to some homes."""
    for (_, _, share, _), step in zip(transfers, steps, strict=True):
        for link, weight in step.use:
            if home(link) in homes:
                use[link] = use.get(link, 0.0) + weight * share / largest


def _one_of_each_kind(passes: Passes) -> Transfers:
    """One transfer of each kind, with the share and the steps of all of them."""
    _, first, kind = np.unique(passes.kind, return_index=True, return_inverse=True)
    sums = (np.bincount(kind, passes.share), np.bincount(kind, passes.steps))
    return tuple(zip(*(column.tolist() for column in (passes.source[first], passes.target[first], *sums)), strict=True))


def _touching(ring: Ring, passes: Passes, shown: Shown) -> Transfers:
    """Transfers out of shown nodes or into them."""
    on = shown.nodes[ring.sites.node[ring.ranks]]
    which = on[passes.source] | on[passes.target]
    columns = (passes.source, passes.target, passes.share, passes.steps)
    return tuple(zip(*(column[which].tolist() for column in columns), strict=True))


def _starts(sizes: Integers) -> Integers:
    """Where each of several runs of given sizes starts."""
    return np.concatenate(([0], np.cumsum(sizes)[:-1]))


@functools.lru_cache(maxsize=256)
def _transfers(
    collective: str, operation: str, sizes: tuple[int, ...]
) -> tuple[tuple[Integers, Integers, Floats, Floats, int], ...]:
    """Rounds of a collective over hosts of so many ranks: arrays of source, target, share, steps; repeats."""
    starts = _starts(np.array(sizes)).tolist()
    hosts = tuple(tuple(range(first, first + size)) for first, size in zip(starts, sizes, strict=True))
    found = []
    for turn in collectives.rounds(collective, operation, hosts):
        rows = np.array([(t.source, t.target, t.share, t.steps) for t in turn.transfers])
        found.append((rows[:, 0].astype(np.int64), rows[:, 1].astype(np.int64), rows[:, 2], rows[:, 3], turn.repeats))
    return tuple(found)


def mixed(*values: NDArray[np.generic]) -> Hashes:
    """One hash of 64 bits of several arrays, element by element (the finaliser of SplitMix64)."""
    total = np.zeros(1, np.uint64)
    for value in values:
        total = (total ^ value.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        total = (total ^ (total >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        total = (total ^ (total >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        total = total ^ (total >> np.uint64(31))
    return total


@functools.lru_cache(maxsize=4096)
def word(*facts: object) -> np.uint64:
    """The hash of a few facts; the same in every process."""
    return np.uint64(int.from_bytes(hashlib.blake2b(repr(facts).encode(), digest_size=8).digest(), "big"))
