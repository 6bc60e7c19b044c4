"""How fast the groups of a stage communicate on an idle network, whatever the payload.

Data-parallel groups of one stage run side by side and share the NICs of their nodes, and so do the context- and expert-parallel
groups of one block of ranks; of such blocks, and of tensor-parallel groups, which stand on different devices, the slowest
decides. Where a collective is to be chosen, the best is looked for among those that the collective library does by itself.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping

from sim import collectives
from sim.cluster import Device, Fleet, common_transport
from sim.errors import PlanError
from sim.plan import ParallelConfig
from sim.routes import Capacities, Devices, Hosts, Member, Pace, by_host, member, ways
from sim.units import Bytes, Seconds


class Paces:
    """Paces of a stage's groups on given devices: `devices[d][t]` is the device of dp_cp index d, tensor-parallel rank t.

    By kind of group and operation, for every collective that may be chosen (`chosen` fixes it). They do not depend on sizes.
    A ring goes on in the order of ranks; `rings` tells of groups, given in that order, for which it does not.
    """

    def __init__(
        self,
        fleet: Fleet,
        config: ParallelConfig,
        devices: tuple[tuple[Device, ...], ...],
        capacities: Capacities,
        chosen: Mapping[str, str] | None = None,
        rings: Mapping[Devices, Devices] | None = None,
    ):
        self.specs = tuple(dict.fromkeys(fleet.spec(device) for replica in devices for device in replica))
        self._fleet, self._capacities, self._chosen = fleet, capacities, chosen or {}
        self._config, self._devices, self._rings = config, devices, rings or {}
        self._blocks: dict[str, list[list[tuple[Device, ...]]]] = {  # groups that run side by side
            **self._inside(tuple(range(len(devices)))),
            "dp": [_columns(devices)],
            "edp": [[group for i in range(config.ep) for group in _columns(devices[i :: config.ep])]],
        }
        self._shards = {"dp": config.shards}
        self._known: dict[str, dict[str, dict[str, tuple[Pace, ...]]]] = {kind: {} for kind in self._blocks}
        self._slowing: dict[tuple[str, str, str], float] = {}

    def among(self, rows: tuple[int, ...]) -> Paces:
        """The same for some dp_cp indices: of tp, cp and ep groups those that they are in; gradients go over all of them."""
        if len(rows) == len(self._devices):
            return self
        found, inside = copy.copy(self), self._inside(rows)
        found._blocks = self._blocks | inside
        found._known = self._known | {kind: {} for kind in inside}
        return found

    def _inside(self, rows: tuple[int, ...]) -> dict[str, list[list[tuple[Device, ...]]]]:
        cp, ep = self._config.cp, self._config.ep
        rings = {_alike(self._devices[row]): self._devices[row] for row in rows}
        return {
            "tp": [[ring] for ring in rings.values()],
            "cp": self._unlike(cp, rows),
            "ep": self._unlike(ep, rows),
        }

    def _unlike(self, width: int, rows: tuple[int, ...]) -> list[list[tuple[Device, ...]]]:
        """Groups of the blocks of so many replicas that some are in; of blocks that stand alike under their leaves only one."""
        found: dict[object, list[tuple[Device, ...]]] = {}
        for first in dict.fromkeys(row - row % width for row in rows):
            block = self._devices[first : first + width]
            flat = tuple(itertools.chain.from_iterable(block)) if width > 1 else ()
            found.setdefault((_alike(flat), self._leaves(flat)), _columns(block))
        return list(found.values())

    def _leaves(self, devices: Devices) -> tuple[int, ...]:
        """Leaf switches of devices, numbered as they come."""
        leaves: dict[tuple[str, int], int] = {}
        fabrics = ((d, self._fleet.cluster(d.cluster).fabric) for d in devices)
        under = ((d.cluster, d.node // fabric.nodes_per_leaf if fabric else 0) for d, fabric in fabrics)
        return tuple(leaves.setdefault(leaf, len(leaves)) for leaf in under)

    def _of(self, kind: str, operation: str) -> dict[str, tuple[Pace, ...]]:
        """Paces of an operation, by protocol, under each collective that may be chosen; looked at when first asked for."""
        known = self._known[kind]
        if operation not in known:
            known[operation] = self._options(kind, operation)
        return known[operation]

    def _options(self, kind: str, operation: str) -> dict[str, tuple[Pace, ...]]:
        """Groups of a block run side by side and share NICs; of blocks the slowest decides."""
        blocks = [[(devices, common_transport(self._fleet, devices)[0]) for devices in block] for block in self._blocks[kind]]
        found = {}
        for name in [self._chosen[kind]] if kind in self._chosen else _choices(operation, by_host(blocks[0][0][0])):
            shards = self._shards.get(kind, 0)
            joined = [
                [member(self._rings.get(devices, devices), nic, name, devices, shards) for devices, nic in block]
                for block in blocks
            ]
            together = [side for block in joined for side in _side_by_side(block, operation)]
            sides = [ways(self._fleet, side, operation, self._capacities) for side in together]
            options = [tuple(way.pace for way in side) for side in sides]
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


def _alike(replica: tuple[Device, ...]) -> tuple[tuple[str, int, int], ...]:
    """Replicas in the same places of their own nodes are joined alike."""
    hosts: dict[tuple[str, int], int] = {}
    return tuple((d.cluster, hosts.setdefault((d.cluster, d.node), len(hosts)), d.index) for d in replica)


def _side_by_side(block: list[Member], operation: str) -> list[tuple[Member, ...]]:
    """Groups that go round by round together: those with equally many rounds, as `sim.folding` has them."""
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
