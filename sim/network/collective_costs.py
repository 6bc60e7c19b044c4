"""How fast the groups of a stage communicate on an idle network, whatever the payload.

Data-parallel groups of one stage run side by side and share the NICs of their nodes, and so do the context- and expert-parallel
groups of one block of ranks; of such blocks, and of tensor-parallel groups, which stand on different devices, the slowest
decides. Where a collective is to be chosen, the best is looked for among those that the collective library does by itself.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping
from dataclasses import replace

from sim import collectives
from sim.errors import PlanError
from sim.hardware.cluster import Device, Fleet, common_transport
from sim.network.alpha_beta import AlphaBeta, protocol_costs
from sim.network.paths import Capacities
from sim.network.replica_rows import Again, Rows
from sim.network.routes import Devices, Hosts, Member, member
from sim.plan.plan import ParallelConfig
from sim.units import Bytes, Seconds

INSIDE = ("tp", "cp", "ep")
"""Kinds of groups that other replicas have no part in."""


class CollectiveCosts:
    """Costs of the collectives of a stage's groups on given devices: row d, column t is the device of dp_cp index d,
    tensor-parallel rank t.

    By kind of group and operation, for every collective that may be chosen (`chosen` fixes it). They do not depend on sizes.
    A ring goes on in the order of ranks; `rings` tells of groups, given in that order, for which it does not. Rings over rows
    of which some stand for others (`sim.network.replica_rows`) are looked at on these alone.
    """

    def __init__(
        self,
        fleet: Fleet,
        config: ParallelConfig,
        rows: Rows,
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

    def among(self, rows: tuple[int, ...]) -> CollectiveCosts:
        """The same for some dp_cp indices: of tp, cp and ep groups those that they are in; gradients go over all of them."""
        if len(rows) == len(self._rows):
            return self
        found = copy.copy(self)
        found._some = rows
        found._known = self._known | {kind: {} for kind in INSIDE}
        return found

    def _blocks(self, kind: str, short: bool) -> list[list[Member]]:
        """Groups that run side by side, block by block, each as a ring; alike blocks once."""
        config, some = self._config, self._some
        if kind == "tp":
            like = range(len(self._rows.kept)) if some is None else dict.fromkeys(self._rows.like[row] for row in some)
            rings = {_alike(self._rows.kept[row]): self._rows.kept[row] for row in like}
            return [[self._member(ring, kind)] for ring in rings.values()]
        if kind == "dp" and short:
            return [[self._member(column, kind, self._rows.again) for column in _columns(self._rows.kept)]]
        if kind in ("dp", "edp"):
            rows = self._rows.all()
            parts = [rows] if kind == "dp" else [rows[i :: config.ep] for i in range(config.ep)]
            return [[self._member(column, kind) for part in parts for column in _columns(part)]]
        return self._unlike(config.cp if kind == "cp" else config.ep, kind)

    def _member(self, devices: Devices, kind: str, again: Again = ()) -> Member:
        nic, _ = common_transport(self._fleet, devices)
        ring = self._rings.get(devices, devices)
        return replace(member(ring, nic, "ring", devices, 0 if again else self._shards.get(kind, 0)), again=_hosts(ring, again))

    def _unlike(self, width: int, kind: str) -> list[list[Member]]:
        """Groups of the blocks of so many replicas that some are in; of blocks that stand alike under their leaves only one."""
        rows, found = self._rows.all(), dict[object, list[Member]]()
        for first in dict.fromkeys(row - row % width for row in (self._some or range(len(rows)))):
            block = rows[first : first + width]
            flat = tuple(itertools.chain.from_iterable(block)) if width > 1 else ()
            key = _alike(flat), self._leaves(flat)
            if key not in found:
                found[key] = [self._member(column, kind) for column in _columns(block)]
        return list(found.values())

    def _leaves(self, devices: Devices) -> tuple[int, ...]:
        """Leaf switches of devices, numbered as they come."""
        leaves: dict[tuple[str, int], int] = {}
        fabrics = ((d, self._fleet.cluster(d.cluster).fabric) for d in devices)
        under = ((d.cluster, d.node // fabric.nodes_per_leaf if fabric else 0) for d, fabric in fabrics)
        return tuple(leaves.setdefault(leaf, len(leaves)) for leaf in under)

    def _of(self, kind: str, operation: str) -> dict[str, tuple[AlphaBeta, ...]]:
        """Costs of an operation, by protocol, under each collective that may be chosen; looked at when first asked
        for."""
        known = self._known[kind]
        if operation not in known:
            known[operation] = self._options(kind, operation)
        return known[operation]

    def _options(self, kind: str, operation: str) -> dict[str, tuple[AlphaBeta, ...]]:
        """Groups of a block run side by side and share NICs; of blocks the slowest decides."""
        whole = self._shards.get(kind, len(self._rows)) == len(self._rows)
        able = kind == "dp" and whole and not self._rings and bool(self._rows.again)
        blocks = {short: self._blocks(kind, short) for short in (able,)}
        found = {}
        for name in [self._chosen[kind]] if kind in self._chosen else _choices(operation, blocks[able][0][0].hosts):
            short = able and collectives.doer(name, operation) == "ring"
            if short not in blocks:
                blocks[short] = self._blocks(kind, short)
            joined = [[replace(group, collective=name) for group in block] for block in blocks[short]]
            together = [side for block in joined for side in _side_by_side(block, operation)]
            sides = [protocol_costs(self._fleet, side, operation, self._capacities) for side in together]
            options = [tuple(way.cost for way in side) for side in sides]
            self._slowing[kind, operation, name] = max(route.interference for side in sides for route in side[0].routes)
            found[name] = max(options, key=lambda paces: min((p.per_byte, p.latency) for p in paces))
        return found

    def seconds(self, kind: str, operation: str, nbytes: Bytes, count: float) -> Seconds:
        """Seconds of `count` collectives, under the best of those that may be chosen and its best protocol."""
        return min(pace.seconds(nbytes, count) for paces in self._of(kind, operation).values() for pace in paces)

    def interference(self, kind: str, operation: str, nbytes: Bytes) -> float:
        """By what share such a collective slows compute beside it, under the collective that `seconds` takes."""
        options = self._of(kind, operation)
        name = min(options, key=lambda name: min(pace.seconds(nbytes) for pace in options[name]))
        return self._slowing[kind, operation, name]

    def best(self, kind: str, work: list[tuple[str, Bytes, float]]) -> str:
        """The collective that does all the work of a kind of group soonest; the ring where there is nothing to choose."""
        totals: dict[str, Seconds] = {}
        for name in collectives.names():
            options = [(self._of(kind, operation).get(name), nbytes, count) for operation, nbytes, count in work]
            if options and all(paces is not None for paces, _, _ in options):
                totals[name] = sum(
                    min(pace.seconds(nbytes, count) for pace in paces) for paces, nbytes, count in options if paces
                )
        return min(totals, key=lambda name: (totals[name], name != "ring"), default="ring")


def _columns(rows: tuple[tuple[Device, ...], ...]) -> list[tuple[Device, ...]]:
    return list(zip(*rows, strict=True))


def _hosts(ring: Devices, again: Again) -> Again:
    """What stands again, by hosts instead of by ranks of a ring."""
    number = {host: index for index, host in enumerate(dict.fromkeys((d.cluster, d.node) for d in ring))}
    at = [number[d.cluster, d.node] for d in (ring if again else ())]
    return tuple((at[first], at[past - 1] + 1, times) for first, past, times in again)


def _alike(replica: tuple[Device, ...]) -> tuple[tuple[str, int, int], ...]:
    """Replicas in the same places of their own nodes are joined alike."""
    hosts: dict[tuple[str, int], int] = {}
    return tuple((d.cluster, hosts.setdefault((d.cluster, d.node), len(hosts)), d.index) for d in replica)


def _side_by_side(block: list[Member], operation: str) -> list[tuple[Member, ...]]:
    """Groups that go round by round together: those with equally many rounds, as `sim.engine.folding` has them."""
    sides: dict[int, list[Member]] = {}
    for group in block:
        sides.setdefault(len(collectives.rounds(group.collective, operation, _numbered(group.hosts))), []).append(group)
    return [tuple(side) for side in sides.values()]


def _numbered(hosts: Hosts) -> collectives.Hosts:
    """Members numbered through, host by host."""
    firsts = itertools.accumulate((len(host) for host in hosts), initial=0)
    return tuple(tuple(range(first, first + len(host))) for first, host in zip(firsts, hosts, strict=False))


def _choices(operation: str, hosts: Hosts) -> list[str]:
    """Collectives that the library can choose for an operation over these hosts, and that differ from the ring."""
    numbers = _numbered(hosts)
    usual = collectives.rounds("ring", operation, numbers)
    names = ["ring"]
    for name in collectives.names():
        if not collectives.get(name).IN_LIBRARY:
            continue
        try:
            if collectives.rounds(name, operation, numbers) != usual:
                names.append(name)
        except PlanError:
            continue
    return names
