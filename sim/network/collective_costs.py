"""Alpha-beta costs of the collectives of a stage's groups on an idle network.

Data-parallel groups of one stage run side by side and share the NICs of their nodes, and so do the context- and expert-parallel
groups of one block of ranks: cp consecutive rows, or those of an expert mesh. The cost of several blocks, or of the
tensor-parallel groups (which use different devices), is that of the slowest. Where no collective is chosen yet, the cost is
that of the fastest one which the collective library can choose by itself.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

from sim import collectives
from sim.errors import NotDefined
from sim.hardware.cluster import Device, Fleet
from sim.hardware.transport import common_transport, reduces_in_network
from sim.network.alpha_beta import AlphaBeta, ProtocolCost, are_equal, protocol_costs, route_loads
from sim.network.memory_traffic import traffic_share
from sim.network.paths import Capacities, LinkName
from sim.network.replica_rows import ReplicaRows, Row, Unlisted
from sim.network.routes import Devices, Hosts, Member, member
from sim.plan.context_parallelism import parts
from sim.plan.groups import GRADIENT_KINDS
from sim.plan.parallel_config import ParallelConfig
from sim.units import Bytes, Seconds

INSIDE = ("tp", "cp", "etp", "ep")
"""Kinds of groups within a block of ranks, in contrast to gradient groups, which span all replicas."""

Rows: TypeAlias = tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class LinkLoads:
    """What a collective takes of each link under the collectives and protocols that may be chosen for it.

    least, most: seconds of a link for each byte of the payload, at its full rate; links that not all choices load have no
    least, and links of unlisted rows are left out. latency: the longest, of one collective. in_one_leg: under each choice all
    links are loaded from begin to end, at the same time."""

    least: dict[LinkName, Seconds]
    most: dict[LinkName, Seconds]
    latency: Seconds
    in_one_leg: bool


class CollectiveCosts:
    """Costs of the collectives of a stage's groups by kind of group, operation, collective and protocol.

    `rows`: devices of the stage; row d, column t is the device of dp_cp index d and tensor-parallel rank t. `chosen`: kind of
    group -> collective, where it is fixed. `rings`: devices of a group in rank order -> in ring order, where the two differ.
    The alpha-beta costs do not depend on payloads; they are computed on first use and cached. Where `rows` lists only some rows
    (`sim.network.replica_rows`), rings over all rows are evaluated on the listed ones.
    """

    def __init__(
        self,
        fleet: Fleet,
        config: ParallelConfig,
        rows: ReplicaRows,
        capacities: Capacities,
        chosen: Mapping[str, str] | None = None,
        rings: Mapping[Devices, Devices] | None = None,
    ):
        self.specs = tuple(dict.fromkeys(fleet.spec(device) for row in rows.kept for device in row))
        self._fleet, self._capacities, self._chosen = fleet, capacities, chosen or {}
        self._config, self._rows, self._rings = config, rows, rings or {}
        self._some: tuple[int, ...] | None = None
        self._shards = {"dp": config.shards}
        self._known: dict[str, dict[str, dict[str, tuple[AlphaBeta, ...]]]] = {kind: {} for kind in ("dp", "edp", *INSIDE)}
        self._slowing: dict[tuple[str, str, str], float] = {}
        self._reduce_together: bool | None = None
        self.known_sums: dict[tuple[object, ...], tuple[Seconds, Seconds, Seconds, int, Seconds]] = {}
        """A cache of `sim.analytic.stage_costs`: seconds of the gradient and parameter collectives of stages."""
        self._passes: dict[tuple[object, ...], tuple[Seconds, Seconds]] = {}
        self.known_slowdowns: dict[tuple[object, ...], tuple[float, float]] = {}
        """A cache of `sim.analytic.evaluator`: how far gradient and parameter collectives slow compute."""

    def among(self, rows: tuple[int, ...]) -> CollectiveCosts:
        """Costs for some dp_cp indices: the tp, cp, etp and ep groups that contain them, and the gradient groups over all."""
        if len(rows) == len(self._rows):
            return self
        some_costs = copy.copy(self)
        some_costs._some, some_costs._passes = rows, {}
        some_costs._known = self._known | {kind: {} for kind in INSIDE}
        return some_costs

    def known_passes(self, config: ParallelConfig) -> dict[tuple[object, ...], tuple[Seconds, Seconds]]:
        """A cache of `sim.analytic.stage_costs`: seconds of the passes of stages; where no collective is part of a pass, all
        stages of the fleet share it."""
        return self._capacities.passes if config.tp == config.cp == 1 and not config.splits_experts else self._passes

    def _blocks(self, kind: str, short: bool, operation: str) -> list[list[Member]]:
        """Blocks, each as the groups that run an operation side by side in it; of equivalent blocks only one.

        `short`: evaluate data-parallel rings on the listed rows only.
        """
        config, some = self._config, self._some
        if kind == "tp":
            like = range(len(self._rows.kept)) if some is None else dict.fromkeys(self._rows.like[row] for row in some)
            rings = {_pattern(self._rows.kept[row]): self._rows.kept[row] for row in like}
            return [[self._member(ring, kind)] for ring in rings.values()]
        if kind == "dp" and short:
            return [[self._member(column, kind, self._rows.unlisted) for column in _columns(self._rows.kept)]]
        if kind in GRADIENT_KINDS:
            rows = self._rows.all()
            return [[self._member(ring, kind) for ring in self._rings_of(kind, rows, operation)]]
        return self._distinct_blocks(config.cp if kind == "cp" else config.expert_rows, kind, operation)

    def _rings_of(self, kind: str, rows: Rows, operation: str) -> list[Devices]:
        """Devices of the groups of a kind that consist of ranks of these consecutive rows, or of their parts that run it."""
        if kind == "dp":
            return _columns(rows)
        if kind == "cp":
            return [ring[own] for ring in _columns(rows) for own in parts(self._config, operation, len(rows))]
        ranks = tuple(itertools.chain.from_iterable(rows))
        return [ranks[own] for own in self._config.expert_slices(kind, len(ranks))]

    def _member(self, devices: Devices, kind: str, unlisted: Unlisted = ()) -> Member:
        nic, _ = common_transport(self._fleet, devices)
        ring = self._rings.get(devices, devices)
        found = member(ring, nic, "ring", devices, 0 if unlisted else self._shards.get(kind, 0))
        return replace(found, unlisted=_hosts(ring, unlisted), queued=kind in GRADIENT_KINDS)

    def _distinct_blocks(self, width: int, kind: str, operation: str) -> list[list[Member]]:
        """Groups of the blocks of `width` rows that are needed; one block of each pattern of devices and leaf switches."""
        rows, blocks = self._rows.all(), dict[object, list[Member]]()
        for first in dict.fromkeys(row - row % width for row in (self._some or range(len(rows)))):
            block = rows[first : first + width]
            flat = tuple(itertools.chain.from_iterable(block))
            key = _pattern(flat), self._leaves(flat)
            if key not in blocks:
                blocks[key] = [self._member(ring, kind) for ring in self._rings_of(kind, block, operation)]
        return list(blocks.values())

    def _leaves(self, devices: Devices) -> tuple[int, ...]:
        """Leaf switch of each device, numbered in order of appearance."""
        leaves: dict[tuple[str, int], int] = {}
        fabrics = ((d, self._fleet.cluster(d.cluster).fabric) for d in devices)
        under = ((d.cluster, d.node // fabric.nodes_per_leaf if fabric else 0) for d, fabric in fabrics)
        return tuple(leaves.setdefault(leaf, len(leaves)) for leaf in under)

    def _of(self, kind: str, operation: str) -> dict[str, tuple[AlphaBeta, ...]]:
        """Collective -> costs of an operation by protocol. Cached."""
        known = self._known[kind]
        if operation not in known:
            known[operation] = self._options(kind, operation)
        return known[operation]

    def _options(self, kind: str, operation: str) -> dict[str, tuple[AlphaBeta, ...]]:
        """Collective -> costs of an operation by protocol: those of the slowest block, whose groups run side by side."""
        by_name = {}
        for name, sides in self._sides(kind, operation):
            options = [tuple(under.cost for under in side) for side in sides]
            by_name[name] = max(options, key=lambda costs: min((p.per_byte, p.latency) for p in costs))
            slows = max(route.interference for side in sides for route in side[0].routes)
            if kind in GRADIENT_KINDS and not self._config.shards_parameters:
                slows += traffic_share(operation, min(p.per_byte for p in by_name[name]), self.specs)
            self._slowing[kind, operation, name] = slows
        return by_name

    def _sides(self, kind: str, operation: str) -> Iterator[tuple[str, list[tuple[ProtocolCost, ...]]]]:
        """Every collective that may be chosen, with the costs by protocol of each set of groups that run side by side."""
        whole = self._shards.get(kind, len(self._rows)) == len(self._rows)
        cuts_rows = kind == "dp" and whole and not self._rings and bool(self._rows.unlisted)
        blocks = {short: self._blocks(kind, short, operation) for short in (cuts_rows,)}
        chosen = [self._chosen[kind]] if kind in self._chosen else self._choices(kind, operation, blocks[cuts_rows])
        for name in chosen:
            short = cuts_rows and collectives.doer(name, operation) == "ring"
            if short not in blocks:
                blocks[short] = self._blocks(kind, short, operation)
            joined = [[replace(group, collective=name) for group in block] for block in blocks[short]]
            together = [side for block in joined for side in _side_by_side(block, operation)]
            yield name, [self._costs(kind, side, operation) for side in together]

    def _costs(self, kind: str, side: tuple[Member, ...], operation: str) -> tuple[ProtocolCost, ...]:
        """Costs of groups that run side by side; those of groups inside a replica are shared by stages of equal placement."""
        if kind not in INSIDE:
            return protocol_costs(self._fleet, side, operation, self._capacities)
        devices = tuple(itertools.chain.from_iterable(itertools.chain.from_iterable(group.hosts for group in side)))
        forms = tuple((group.nic, group.collective, tuple(map(len, group.hosts))) for group in side)
        key = operation, forms, _pattern(devices), self._leaves(devices)
        if key not in self._capacities.shared:
            self._capacities.shared[key] = protocol_costs(self._fleet, side, operation, self._capacities)
        found: tuple[ProtocolCost, ...] = self._capacities.shared[key]
        return found

    @property
    def reduce_together(self) -> bool:
        """Whether all ranks of the stage take equally long to reduce gradients, whatever collective is chosen.

        Not so where tensor-parallel ranks have unlike shares of NICs. Ranks of several levels of groups count as unlike."""
        config = self._config
        if config.splits_experts or config.zero_shard_size:
            return False
        if self._reduce_together is None:
            every = [sides for _, sides in self._sides("dp", config.reduction)] if len(self._rows) > 1 else []
            self._reduce_together = all(
                len(sides) == 1 and all(are_equal(under.routes, self._capacities) for under in sides[0]) for sides in every
            )
        return self._reduce_together

    def link_loads(self, operation: str) -> LinkLoads:
        """Loads of an operation of all data-parallel groups of the stage, which run side by side."""
        return _link_loads([sides for _, sides in self._sides("dp", operation)], self._capacities)

    def _choices(self, kind: str, operation: str, blocks: list[list[Member]]) -> list[str]:
        """The ring, and all collectives that the library can choose for the groups of these blocks and that differ from it.

        Switches reduce for gradients only: NCCL lets one communicator use them, and Megatron-LM gives them to the data-parallel
        group (NVIDIA/Megatron-LM d98e8a64, megatron/core/parallel_state.py, use_sharp)."""
        ring = blocks[0][0].hosts
        in_network = kind == "dp" and all(
            reduces_in_network(self._fleet, itertools.chain.from_iterable(group.hosts), group.nic)
            for block in blocks
            for group in block
        )
        return [name for name in _library(operation, ring) if in_network or not collectives.is_in_network(name, operation)]

    def seconds(self, kind: str, operation: str, nbytes: Bytes, count: float) -> Seconds:
        """Seconds of `count` collectives of `nbytes`, under the fastest collective and protocol that may be chosen."""
        return min(cost.seconds(nbytes, count) for costs in self._of(kind, operation).values() for cost in costs)

    def interference(self, kind: str, operation: str, nbytes: Bytes) -> float:
        """The share by which a collective slows compute beside it; the collective is the one that `seconds` chooses."""
        options = self._of(kind, operation)
        name = min(options, key=lambda name: min(cost.seconds(nbytes) for cost in options[name]))
        return self._slowing[kind, operation, name]

    def best(self, kind: str, work: list[tuple[str, Bytes, float]]) -> str:
        """The collective that takes least time for all of `work`: (operation, bytes, count); the ring if none can do it."""
        totals: dict[str, Seconds] = {}
        for name in collectives.names():
            options = [(self._of(kind, operation).get(name), nbytes, count) for operation, nbytes, count in work]
            if options and all(costs is not None for costs, _, _ in options):
                totals[name] = sum(
                    min(cost.seconds(nbytes, count) for cost in costs) for costs, nbytes, count in options if costs
                )
        return min(totals, key=lambda name: (totals[name], name != "ring"), default="ring")


def _link_loads(choices: list[list[tuple[ProtocolCost, ...]]], capacities: Capacities) -> LinkLoads:
    """Loads under choices of a collective, each given as its sides (`CollectiveCosts._sides`)."""
    every = [under for sides in choices for side in sides for under in side]
    options = [route_loads(under.routes, capacities) for under in every]
    least = {link: min(one[link] for one in options) for link in set.intersection(*map(set, options))}
    most = {link: max(one.get(link, 0.0) for one in options) for link in set().union(*options)}
    in_one_leg = all(len(sides) == 1 for sides in choices) and all(len(r.legs) == 1 for under in every for r in under.routes)
    return LinkLoads(least, most, max(under.cost.latency for under in every), in_one_leg)


def _columns(rows: Rows) -> list[Devices]:
    return list(zip(*rows, strict=True))


def _hosts(ring: Devices, unlisted: Unlisted) -> Unlisted:
    """`unlisted` in indices of hosts in place of indices of ranks of a ring."""
    number = {host: index for index, host in enumerate(dict.fromkeys((d.cluster, d.node) for d in ring))}
    at = [number[d.cluster, d.node] for d in (ring if unlisted else ())]
    return tuple((at[first], at[past - 1] + 1, times) for first, past, times in unlisted)


def _pattern(replica: tuple[Device, ...]) -> tuple[tuple[str, int, int], ...]:
    """(cluster, node numbered in order of appearance, index) of each device: rings of equal pattern have equal costs."""
    hosts: dict[tuple[str, int], int] = {}
    return tuple((d.cluster, hosts.setdefault((d.cluster, d.node), len(hosts)), d.index) for d in replica)


def _side_by_side(block: list[Member], operation: str) -> list[tuple[Member, ...]]:
    """Groups of a block that share links round by round: those with equally many rounds, as in `sim.engine.carriers`."""
    sides: dict[int, list[Member]] = {}
    for group in block:
        sides.setdefault(len(collectives.rounds(group.collective, operation, _numbered(group.hosts))), []).append(group)
    return [tuple(side) for side in sides.values()]


def _numbered(hosts: Hosts) -> collectives.Hosts:
    """Members in place of devices: consecutive numbers, host by host."""
    firsts = itertools.accumulate((len(host) for host in hosts), initial=0)
    return tuple(tuple(range(first, first + len(host))) for first, host in zip(firsts, hosts, strict=False))


def _library(operation: str, hosts: Hosts) -> list[str]:
    """The ring, and all collectives that the library can choose for an operation over these hosts and that differ from it."""
    numbers = _numbered(hosts)
    names, usual = ["ring"], collectives.doer("ring", operation)
    for name in collectives.names():
        if collectives.get(name).IN_LIBRARY and collectives.doer(name, operation) != usual:
            with suppress(NotDefined):
                if collectives.rounds(name, operation, numbers) != collectives.rounds("ring", operation, numbers):
                    names.append(name)
    return names
