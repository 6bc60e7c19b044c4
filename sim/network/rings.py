"""Gradient collectives of many ranks, as arrays: what passes between whom, and what of it the links of shown ranks see.

They span all replicas of a plan. Of such a ring only the transfers that touch shown nodes (`sim.engine.replica_blocks`) need
links by name; of all others it is enough to know of which kind they are: transfers between alike places go over alike links,
with the same latency. So a route costs what its kinds and its shown transfers cost, however many ranks there are."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sim import collectives
from sim.hardware.link_spec import LinkSpec
from sim.network.routes import Leg, LinkName, Path, Route, link_specs, offered, path
from sim.plan.groups import Group
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan

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
        self._rings: dict[tuple[bytes, int], tuple[tuple[Ring, Integers], ...]] = {}

    def rings(self, rows: Integers) -> tuple[tuple[Ring, Integers], ...]:
        """Rings that run side by side, each over a row of ranks in ring order: those with alike hosts together, and which rows
        they are; made once."""
        key = rows.tobytes(), len(rows)
        if key not in self._rings:
            self._rings[key] = tuple(self._made(rows))
        return self._rings[key]

    def _made(self, rows: Integers) -> Iterator[tuple[Ring, Integers]]:
        together = Ring(self, rows)
        patterns: dict[tuple[int, ...], list[int]] = {}
        for index, pattern in enumerate(together.patterns()):
            patterns.setdefault(pattern, []).append(index)
        for members in patterns.values():
            yield (together if len(patterns) == 1 else Ring(self, rows[members])), np.array(members)


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
    """The ranks of a ring host by host, as collectives see them; or of several alike ones (`many`), one after the other.

    `pattern` is how many ranks each host of a ring has."""

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
        for source, target, share, steps, repeats in _transfers(collective, operation, self.pattern):
            a, b = (firsts + source).ravel(), (firsts + target).ravel()
            near = 2 * (self.host[a] == self.host[b]) + (leaf[a] == leaf[b])
            kind = mixed(here[a], here[b], near)
            yield Passes(a, b, np.tile(share, self.many), np.tile(steps, self.many), kind, repeats)

    def rounds(self, collective: str, operation: str) -> int:
        """How many rounds a collective has on this ring."""
        return len(_transfers(collective, operation, self.pattern))

    @property
    def on_one_host(self) -> bool:
        """Whether each ring stays on one host."""
        return bool(len(self.sizes) == self.many)

    def links(self, plan: Plan, row: int, nic: str) -> Iterator[LinkSpec]:
        """Every interconnect and NIC type that one of the rings may use."""
        mine = slice(row * len(self.pattern), (row + 1) * len(self.pattern))
        hosts = np.unique(2 * self.sites.cluster[self.ranks[self.starts[mine]]] + (self.sizes[mine] > 1)).tolist()
        named = ((plan.fleet.clusters[host // 2].name, bool(host % 2)) for host in hosts)
        return link_specs(plan.fleet, named, "" if self.on_one_host else nic)


def gradient_operations(config: ParallelConfig) -> tuple[str, ...]:
    """Collectives that gradient groups are asked for."""
    return ("reduce_scatter", "all_gather") if config.zero_stage >= 1 else ("all_reduce",)


def gradient_parts(groups: Sequence[Group], operation: str, shards: int) -> tuple[tuple[Integers, str, float], ...]:
    """What gradient collectives of equally many ranks do one after the other: rings side by side, operation, payload's share.

    The rings are rows, equally many of each group, group by group. One ring a group; where blocks of ranks share state, rings
    of blocks, then of what their ranks hold alike (`sim.network.routes.Member`).
    """
    rings = np.array([group.ranks for group in groups])
    if groups[0].kind != "dp" or shards == rings.shape[1]:
        return ((rings, operation, 1.0),)
    blocks = np.sort(rings, axis=1).reshape(len(groups), -1, shards)
    inside = (blocks.reshape(-1, shards), operation, 1.0)
    copies = blocks.swapaxes(1, 2).reshape(len(groups) * shards, -1)
    return (inside,) if operation == "all_gather" else (inside, (copies, "all_reduce", 1 / shards))


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


Transfers: TypeAlias = tuple[tuple[int, int, int, float], ...]
"""(group, source, target, share), between positions of a ring."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """One round of the collectives of several groups: a transfer of each kind, and all transfers that touch shown nodes.

    `of` is the group of a row of the ring, `largest` the largest share of a transfer of each group. `share` and `there` tell of
    each group (row) and kind (column) what share of a payload goes over transfers of the kind, and whether there are any;
    `steps` of each row of the ring how often latency is paid.
    """

    ring: Ring
    of: Integers
    kinds: Transfers
    share: Floats
    there: NDArray[np.bool_]
    steps: Floats
    shown: Transfers
    largest: Floats
    repeats: int


class GradientRoutes:
    """Gradient collectives of groups side by side, as trunks and the links of shown nodes and leaves see them."""

    def __init__(self, plan: Plan, sites: Sites, shown: Shown, groups: Sequence[Group], operation: str):
        self.plan, self.sites, self.groups, self.operation, self.homes = plan, sites, groups, operation, shown.homes
        nics = np.array([word(group.nic) for group in groups])
        self.parts = []
        for rows, does, scale in gradient_parts(groups, operation, plan.config.shards):
            each = len(rows) // len(groups)
            seen = [
                [_seen(ring, members // each, nics, passes, shown) for passes in ring.passes(groups[0].collective, does)]
                for ring, members in sites.rings(rows)
            ]
            self.parts.append((tuple(zip(*seen, strict=True)), does, scale))

    def protocols(self) -> tuple[str, ...]:
        """Protocols that all links of these groups offer."""
        rings = self.sites.rings(np.array([group.ranks for group in self.groups]))
        used = ((ring, row, self.groups[group].nic) for ring, members in rings for row, group in enumerate(members))
        specs = (spec for ring, row, nic in used for spec in ring.links(self.plan, row, nic))
        switched = self.groups[0].collective == "ring" and all(ring.on_one_host for ring, _ in rings)
        return offered(specs, self.operation, switched)

    def under(self, protocol: str) -> tuple[Route, ...]:
        """The route of every group under a protocol: that of `sim.network.routes.member_route` without the links of copies."""
        legs: list[list[Leg]] = [[] for _ in self.groups]
        overhead, interference = np.zeros(len(self.groups)), np.zeros(len(self.groups))
        for rounds, operation, scale in self.parts:
            highest = np.zeros(len(self.groups))
            for side in rounds:
                largest = np.max([seen.largest for seen in side], axis=0)
                uses: list[dict[LinkName, float]] = [{} for _ in self.groups]
                latency = np.zeros(len(self.groups))
                for seen in side:
                    paths = [self._path(seen.ring, where, operation, protocol) for where in seen.kinds]
                    for index, found in enumerate(paths):
                        trunks = [(link, weight) for link, weight in found.use if link[0] == "trunk"]
                        for group in np.flatnonzero(seen.there[:, index]) if trunks else ():
                            _add(uses[group], trunks, float(seen.share[group, index] / largest[group]))
                    for where in seen.shown:
                        group, _, _, share = where
                        use = self._path(seen.ring, where, operation, protocol).use
                        own = [(link, weight) for link, weight in use if home(link) in self.homes]
                        _add(uses[group], own, share / float(largest[group]))
                    np.maximum.at(latency, seen.of, seen.steps @ [found.latency for found in paths])
                    highest = np.maximum(highest, (seen.there * [found.overhead for found in paths]).max(axis=1))
                    interference = np.maximum(interference, (seen.there * [found.interference for found in paths]).max(axis=1))
                shares = largest * side[0].repeats * scale
                for mine, total, share, late in zip(legs, uses, shares.tolist(), latency.tolist(), strict=True):
                    mine.append(Leg(tuple(total.items()), share, late))
            overhead += highest
        numbers = zip(legs, overhead.tolist(), interference.tolist(), strict=True)
        return tuple(Route(tuple(mine), over, slows) for mine, over, slows in numbers)

    def _path(self, ring: Ring, transfer: tuple[int, int, int, float], operation: str, protocol: str) -> Path:
        group, a, b, _ = transfer
        source, target = (self.plan.placement[ring.ranks[position]] for position in (a, b))
        near = ring.near(a), ring.near(b)
        nic, members = self.groups[group].nic, len(near[0])
        return path(self.plan.fleet, nic, source, target, operation, *near, members, ring.length, protocol)


def _seen(ring: Ring, of: Integers, nics: Hashes, passes: Passes, shown: Shown) -> _Seen:
    """What to look at of a round; `of` is the group of every row of the ring, `nics` tells the NICs of groups apart."""
    row, groups = passes.source // ring.length, len(nics)
    _, first, kind = np.unique(mixed(passes.kind, nics[of[row]]), return_index=True, return_inverse=True)
    share, there, steps = (
        np.zeros((groups, len(first))),
        np.zeros((groups, len(first)), bool),
        np.zeros((ring.many, len(first))),
    )
    largest = np.zeros(groups)
    np.maximum.at(largest, of[row], passes.share)
    np.add.at(share, (of[row], kind), passes.share)
    there[of[row], kind] = True
    np.add.at(steps, (row, kind), passes.steps)
    on = shown.nodes[ring.sites.node[ring.ranks]]
    touching = np.flatnonzero(on[passes.source] | on[passes.target])

    def listed(which: Integers) -> Transfers:
        columns = of[row[which]], passes.source[which], passes.target[which], passes.share[which]
        return tuple(zip(*(column.tolist() for column in columns), strict=True))

    return _Seen(
        ring, of, listed(first), share, there, steps, listed(touching), largest, passes.repeats
    )  # fmt: skip


def _add(use: dict[LinkName, float], links: Iterable[tuple[LinkName, float]], share: float) -> None:
    for link, weight in links:
        use[link] = use.get(link, 0.0) + weight * share


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
