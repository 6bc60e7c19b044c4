"""Routes of gradient collectives, which span all replicas of a plan, at a cost that does not grow with the number of links.

Symmetry reduction keeps only some replicas, whose ranks are the shown ranks (`sim.engine.replica_blocks`). So only transfers
from or to nodes of shown ranks need their links by name. Of all other transfers only the kind matters
(`sim.network.rings.RingRound`): one transfer of each kind gives latency, overhead, interference and the load of trunks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sim import collectives
from sim.network.hashes import Hashes, hash_arrays, hash_facts
from sim.network.paths import End, LinkName, Path, Traffic, path
from sim.network.protocols import in_network, offered
from sim.network.rings import Floats, Integers, Ring, RingRound, Sites
from sim.network.routes import Leg, Route
from sim.plan.amax import shares_amax
from sim.plan.groups import Group
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan


def gradient_operations(config: ParallelConfig) -> tuple[str, ...]:
    """Operations that gradient groups run in a step; of stages with unlike ZeRO, those of all."""
    alike = [config.of_pp_rank(config.stage_zero.index(zero)) for zero in sorted(set(config.stage_zero))] or [config]
    every = ((one.reduction, "all_gather") if one.zero_stage >= 1 else (one.reduction,) for one in alike)
    found = tuple(dict.fromkeys(operation for operations in every for operation in operations))
    return (*found, "all_reduce") if shares_amax(config) and "all_reduce" not in found else found


def gradient_parts(groups: Sequence[Group], operation: str, shard_size: int | None) -> tuple[tuple[Integers, str, float], ...]:
    """(rings, operation, share of the payload) of the parts, run in sequence, of a gradient collective of equally large groups.

    Each row of `rings` is the ranks of one ring; the rings of a part run side by side, equally many of each group, group by
    group. One part with one ring a group; or, where blocks of ranks share state, rings over blocks and then rings over the
    ranks that hold the same shard (`sim.network.routes.Member`). shard_size: `ParallelConfig.zero_shard_size`.
    """
    rings = np.array([group.ranks for group in groups])
    shards = shard_size or rings.shape[1]
    if groups[0].kind != "dp" or shards == rings.shape[1]:
        return ((rings, operation, 1.0),)
    blocks = np.sort(rings, axis=1).reshape(len(groups), -1, shards)
    inside = (blocks.reshape(-1, shards), operation, 1.0)
    copies = blocks.swapaxes(1, 2).reshape(len(groups) * shards, -1)
    return (inside,) if operation == "all_gather" else (inside, (copies, "all_reduce", 1 / shards))


Home: TypeAlias = tuple[str | int, ...]
"""Owner of a link: a node (cluster, number) or a leaf ("leaf", cluster, number); () for a trunk."""


def _home(link: LinkName) -> Home:
    return () if link[0] == "trunk" else ("leaf", link[1], link[3]) if link[0] == "leaf" else link[1:3]


class Shown:
    """Nodes and leaves of the shown ranks: `nodes` as a mask over node numbers, `homes` the nodes and leaves by name."""

    def __init__(self, plan: Plan, sites: Sites, ranks: tuple[int, ...]):
        self.nodes = np.zeros(int(sites.node.max()) + 1, bool)
        self.nodes[sites.node[list(ranks)]] = True
        self.homes = set[Home]()
        for device in (plan.placement[rank] for rank in ranks):
            fabric = plan.fleet.cluster(device.cluster).fabric
            self.homes.add((device.cluster, device.node))
            self.homes.add(("leaf", device.cluster, device.node // fabric.nodes_per_leaf if fabric else 0))


Transfers: TypeAlias = tuple[tuple[int, int, int, float], ...]
"""(group, source, target, share); source and target are positions in `Ring.ranks`."""


@dataclass(frozen=True, slots=True)
class _RoundSummary:
    """One round of the collectives of several groups: one transfer of each kind, and all transfers that touch shown nodes.

    `of` is the group of each row of the ring; `share` and `present` are, by group and kind, the total share of transfers and
    whether there are any; `steps` is, by row and kind, the total of latency steps; `largest` is the largest share of a transfer
    by group.
    """

    ring: Ring
    of: Integers
    kinds: Transfers
    share: Floats
    present: NDArray[np.bool_]
    steps: Floats
    shown: Transfers
    largest: Floats
    repeats: int


class GradientRoutes:
    """Gradient collectives of groups that run side by side: their load on trunks and on links of shown nodes and leaves."""

    def __init__(self, plan: Plan, sites: Sites, shown: Shown, groups: Sequence[Group], operation: str):
        self.plan, self.sites, self.groups, self.operation, self.homes = plan, sites, groups, operation, shown.homes
        nics = np.array([hash_facts(group.nic) for group in groups])
        self.parts = []
        for rows, does, scale in gradient_parts(groups, operation, plan.config.zero_shard_size):
            each = len(rows) // len(groups)
            rounds = [
                [_summary(ring, members // each, nics, one, shown) for one in ring.rounds(groups[0].collective, does)]
                for ring, members in sites.rings(rows)
            ]
            self.parts.append((tuple(zip(*rounds, strict=True)), does, scale))

    def protocols(self) -> tuple[str, ...]:
        """Names of the protocols that all links of these groups offer."""
        rings = self.sites.rings(np.array([group.ranks for group in self.groups]))
        used = ((ring, row, self.groups[group].nic) for ring, members in rings for row, group in enumerate(members))
        specs = (spec for ring, row, nic in used for spec in ring.links(self.plan, row, nic))
        collective = self.groups[0].collective
        pipelined = len(self.parts) == 1 and collectives.is_pipelined(collective, self.operation)
        together = collective == "ring" and all(ring.on_one_host for ring, _ in rings)
        switched = together or (pipelined and not any(ring.on_one_host for ring, _ in rings))
        names = offered(specs, self.operation, switched, pipelined)
        return in_network(names) if collectives.is_in_network(collective, self.operation) else names

    def under(self, protocol: str) -> tuple[Route, ...]:
        """The route of every group under a protocol: `sim.network.routes.member_route` without links of nodes not shown.

        Part by part, round by round: a group's leg has the load of its transfers on trunks (from totals by kind) and on shown
        links (transfer by transfer), relative to its largest share, and the latency of its slowest ring.
        """
        legs: list[list[Leg]] = [[] for _ in self.groups]
        overhead, interference = np.zeros(len(self.groups)), np.zeros(len(self.groups))
        for rounds, operation, scale in self.parts:
            highest = np.zeros(len(self.groups))
            pipelined = collectives.is_pipelined(self.groups[0].collective, operation)
            for side in rounds:
                largest = np.max([summary.largest for summary in side], axis=0)
                uses: list[dict[LinkName, float]] = [{} for _ in self.groups]
                latency = np.zeros(len(self.groups))
                for summary in side:
                    present, paths = summary.present, [self._path(summary.ring, t, operation, protocol) for t in summary.kinds]
                    for index, one in enumerate(paths):
                        trunks = [(link, weight) for link, weight in one.use if link[0] == "trunk"]
                        for group in np.flatnonzero(present[:, index]) if trunks else ():
                            _add(uses[group], trunks, float(summary.share[group, index] / largest[group]))
                    for transfer in summary.shown:
                        group, _, _, share = transfer
                        use = self._path(summary.ring, transfer, operation, protocol).use
                        own = [(link, weight) for link, weight in use if _home(link) in self.homes]
                        _add(uses[group], own, share / float(largest[group]))
                    waits = [one.latency + (one.chunk if pipelined else 0.0) for one in paths]
                    np.maximum.at(latency, summary.of, summary.steps @ waits)
                    highest = np.maximum(highest, (present * [one.overhead for one in paths]).max(axis=1))
                    interference = np.maximum(interference, (present * [one.interference for one in paths]).max(axis=1))
                shares = largest * side[0].repeats * scale
                for own_legs, total, share, late in zip(legs, uses, shares.tolist(), latency.tolist(), strict=True):
                    own_legs.append(Leg(tuple(total.items()), share, late))
            overhead += highest
        numbers = zip(legs, overhead.tolist(), interference.tolist(), strict=True)
        return tuple(Route(tuple(own_legs), over, slows) for own_legs, over, slows in numbers)

    def _path(self, ring: Ring, transfer: tuple[int, int, int, float], operation: str, protocol: str) -> Path:
        group, a, b, _ = transfer
        source, target = (End(self.plan.placement[ring.ranks[position]], ring.near(position)) for position in (a, b))
        traffic = Traffic(self.groups[group].nic, operation, len(source.near), ring.length, protocol, True)
        return path(self.plan.fleet, source, target, traffic)


def _summary(ring: Ring, of: Integers, nics: Hashes, one: RingRound, shown: Shown) -> _RoundSummary:
    """Summary of a round; `of` is the group of every row of the ring, `nics` the hash of every group's NIC type."""
    row, groups = one.source // ring.length, len(nics)
    _, first, kind = np.unique(hash_arrays(one.kind, nics[of[row]]), return_index=True, return_inverse=True)
    share, present = np.zeros((groups, len(first))), np.zeros((groups, len(first)), bool)
    steps, largest = np.zeros((ring.many, len(first))), np.zeros(groups)
    np.maximum.at(largest, of[row], one.share)
    np.add.at(share, (of[row], kind), one.share)
    present[of[row], kind] = True
    np.add.at(steps, (row, kind), one.steps)
    on = shown.nodes[ring.sites.node[ring.ranks]]
    touching = np.flatnonzero(on[one.source] | on[one.target])

    def listed(which: Integers) -> Transfers:
        columns = of[row[which]], one.source[which], one.target[which], one.share[which]
        return tuple(zip(*(column.tolist() for column in columns), strict=True))

    return _RoundSummary(ring, of, listed(first), share, present, steps, listed(touching), largest, one.repeats)


def _add(use: dict[LinkName, float], links: Iterable[tuple[LinkName, float]], share: float) -> None:
    for link, weight in links:
        use[link] = use.get(link, 0.0) + weight * share
