"""Gradient collectives of many ranks, as arrays: what passes between whom, and what of it the links of shown ranks see.

They span all replicas of a plan. Of such a ring only the transfers that touch shown nodes (`sim.symmetry`) need links by name;
of all others it is enough to know of which kind they are: transfers between alike places go over alike links, with the same
latency. So a route costs what its kinds and its shown transfers cost, however many ranks there are."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Iterator
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
        self._rings: dict[tuple[bytes, int], tuple[Ring, ...]] = {}

    def rings(self, rows: Integers) -> tuple[Ring, ...]:
        """Rings that run side by side, each over a row of ranks in ring order: those with alike hosts together; made once."""
        key = rows.tobytes(), len(rows)
        if key not in self._rings:
            self._rings[key] = tuple(self._made(rows))
        return self._rings[key]

    def _made(self, rows: Integers) -> Iterator[Ring]:
        together = Ring(self, rows)
        patterns: dict[tuple[int, ...], list[int]] = {}
        for index, pattern in enumerate(together.patterns()):
            patterns.setdefault(pattern, []).append(index)
        if len(patterns) == 1:
            yield together
        else:
            yield from (Ring(self, rows[members]) for members in patterns.values())


@dataclass(frozen=True, slots=True)
class Passes:
    """One round of a collective on rings: transfers between positions in `Ring.ranks`, as in `sim.collectives.Transfer`.

    Transfers of equal `kind` go between alike places: over alike links, with the same weights and latencies.
    """

    source: Integers
    target: Integers
    share: Floats
    steps: Floats
    kind: Hashes
    repeats: int


class Ring:
    """The ranks of a ring host by host, as collectives see them; or of several alike ones (`many`), one after the other."""

    def __init__(self, sites: Sites, rows: Integers):
        self.many, self.length = rows.shape
        node = sites.node[rows] + np.arange(self.many)[:, None] * (int(sites.node.max()) + 1)
        _, first, host, sizes = np.unique(node.ravel(), return_index=True, return_inverse=True, return_counts=True)
        order = np.argsort(first)
        host = np.argsort(order)[host]
        by_host = np.argsort(host, kind="stable")
        self.sites, self.ranks, self.host, self.sizes = sites, rows.ravel()[by_host], host[by_host], sizes[order]
        self.starts = _starts(self.sizes)
        self._passes: dict[tuple[str, str], tuple[Passes, ...]] = {}

    def patterns(self) -> Iterator[tuple[int, ...]]:
        """How many ranks are on each host, ring by ring."""
        hosts = np.searchsorted(self.starts, np.arange(self.many + 1) * self.length)
        sizes = self.sizes.tolist()
        return (tuple(sizes[first:past]) for first, past in itertools.pairwise(hosts.tolist()))

    def near(self, position: int) -> tuple[int, ...]:
        """Indices on its node of all members that share the host of the member at a position."""
        host = self.host[position]
        first = self.starts[host]
        return tuple(self.sites.index[self.ranks[first : first + self.sizes[host]]].tolist())

    def passes(self, collective: str, operation: str) -> tuple[Passes, ...]:
        """Rounds of a collective; found once."""
        key = (collective, operation)
        if key not in self._passes:
            self._passes[key] = tuple(self._found(collective, operation))
        return self._passes[key]

    def _found(self, collective: str, operation: str) -> Iterator[Passes]:
        index, cluster, leaf = self.sites.index[self.ranks], self.sites.cluster[self.ranks], self.sites.leaf[self.ranks]
        members = np.add.reduceat(mixed(index), self.starts)[self.host]
        here = mixed(cluster, index, members, self.sizes[self.host])
        firsts = np.arange(self.many)[:, None] * self.length
        for source, target, share, steps, repeats in _transfers(collective, operation, next(self.patterns())):
            a, b = (firsts + source).ravel(), (firsts + target).ravel()
            near = 2 * (self.host[a] == self.host[b]) + (leaf[a] == leaf[b])
            kind = mixed(here[a], here[b], near)
            yield Passes(a, b, np.tile(share, self.many), np.tile(steps, self.many), kind, repeats)

    def rounds(self, collective: str, operation: str) -> int:
        """How many rounds a collective has on this ring."""
        return len(_transfers(collective, operation, next(self.patterns())))

    @property
    def on_one_host(self) -> bool:
        """Whether each ring stays on one host."""
        return bool(len(self.sizes) == self.many)

    def links(self, plan: Plan, nic: str) -> Iterator[LinkSpec]:
        """Every interconnect and NIC type that may be used."""
        first = self.sites.cluster[self.ranks[self.starts]]
        hosts = set(zip(first.tolist(), (self.sizes > 1).tolist(), strict=True))
        named = ((plan.fleet.clusters[cluster].name, several) for cluster, several in hosts)
        return link_specs(plan.fleet, named, "" if self.on_one_host else nic)


def gradient_operations(config: ParallelConfig) -> tuple[str, ...]:
    """Collectives that gradient groups are asked for."""
    return ("reduce_scatter", "all_gather") if config.zero_stage >= 1 else ("all_reduce",)


def gradient_parts(group: Group, operation: str, shards: int) -> tuple[tuple[Integers, str, float], ...]:
    """What a gradient collective does one after the other: rings side by side (rows), their operation, their payload's share.

    One ring; where blocks of ranks share state, rings of blocks, then of what their ranks hold alike (`sim.routes.Member`).
    """
    ring = np.array(group.ranks)
    if group.kind != "dp" or shards == len(ring):
        return ((ring[None, :], operation, 1.0),)
    blocks = np.sort(ring).reshape(-1, shards)
    inside = (blocks, operation, 1.0)
    return (inside,) if operation == "all_gather" else (inside, (blocks.T, "all_reduce", 1 / shards))


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


Transfers: TypeAlias = tuple[tuple[int, int, float], ...]
"""(source, target, share), between positions of a ring."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """One round on alike rings: a transfer of each kind, standing for all of them, and those that touch shown nodes.

    `steps` holds how often each ring (row) pays the latency of each kind (column).
    """

    ring: Ring
    kinds: Transfers
    steps: Floats
    shown: Transfers
    largest: float
    repeats: int


class GradientRoute:
    """A gradient collective as trunks and the links of shown nodes and leaves see it, under whatever protocol."""

    def __init__(self, plan: Plan, sites: Sites, shown: Shown, group: Group, operation: str):
        self.plan, self.group, self.homes = plan, group, shown.homes
        self.parts = []
        for rows, does, scale in gradient_parts(group, operation, plan.config.shards):
            seen = [
                [_seen(ring, passes, shown) for passes in ring.passes(group.collective, does)] for ring in sites.rings(rows)
            ]
            self.parts.append((tuple(zip(*seen, strict=True)), does, scale))

    def under(self, protocol: str) -> Route:
        """Its route under a protocol: what `sim.routes.member_route` finds, without the links of copies."""
        legs: list[Leg] = []
        overhead = interference = 0.0
        for rounds, operation, scale in self.parts:
            highest = 0.0
            for side in rounds:
                largest, latency = max(seen.largest for seen in side), 0.0
                use: dict[LinkName, float] = {}
                for seen in side:
                    paths = [self._path(seen.ring, transfer, operation, protocol) for transfer in seen.kinds]
                    _add(use, seen.kinds, paths, largest, {()})
                    _add(
                        use,
                        seen.shown,
                        [self._path(seen.ring, t, operation, protocol) for t in seen.shown],
                        largest,
                        self.homes,
                    )
                    latency = max(latency, float((seen.steps @ [path.latency for path in paths]).max()))
                    highest = max(highest, *(path.overhead for path in paths))
                    interference = max(interference, *(path.interference for path in paths))
                legs.append(Leg(tuple(use.items()), largest * side[0].repeats * scale, latency))
            overhead += highest
        return Route(tuple(legs), overhead, interference)

    def _path(self, ring: Ring, transfer: tuple[int, int, float], operation: str, protocol: str) -> Path:
        a, b, _ = transfer
        source, target = (self.plan.placement[ring.ranks[position]] for position in (a, b))
        near = ring.near(a), ring.near(b)
        members = len(near[0])
        return path(self.plan.fleet, self.group.nic, source, target, operation, *near, members, ring.length, protocol)


def _seen(ring: Ring, passes: Passes, shown: Shown) -> _Seen:
    _, first, kind = np.unique(passes.kind, return_index=True, return_inverse=True)
    shares: Floats = np.bincount(kind, passes.share).astype(np.float64)
    steps = np.zeros((ring.many, len(first)))
    np.add.at(steps, (passes.source // ring.length, kind), passes.steps)
    on = shown.nodes[ring.sites.node[ring.ranks]]
    touching = on[passes.source] | on[passes.target]
    return _Seen(
        ring,
        _listed(passes.source[first], passes.target[first], shares),
        steps,
        _listed(passes.source[touching], passes.target[touching], passes.share[touching]),
        float(passes.share.max()),
        passes.repeats,
    )


def _listed(source: Integers, target: Integers, share: Floats) -> Transfers:
    return tuple(zip(source.tolist(), target.tolist(), share.tolist(), strict=True))


def _add(use: dict[LinkName, float], transfers: Transfers, paths: list[Path], largest: float, homes: set[Home]) -> None:
    """Add what transfers take of the links that belong to some homes."""
    for (_, _, share), found in zip(transfers, paths, strict=True):
        for link, weight in found.use:
            if home(link) in homes:
                use[link] = use.get(link, 0.0) + weight * share / largest


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
