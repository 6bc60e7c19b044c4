"""From one plan to another on the machines that are left: which devices find their weights in place, and what must move.

Nodes of a cluster under one leaf switch are alike, so a plan whose nodes change places there is an equal plan. `settled` takes
the one of all these in which most ranks find the weights they need on their device, and of those the one that moves least: an
assignment of the plan's nodes to machines (Kuhn, The Hungarian method for the assignment problem, 1955).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sim.formats.lost_nodes import Place, leaf
from sim.hardware.cluster import Device
from sim.kernels import memory
from sim.plan.plan import Plan
from sim.units import Bytes

STAYS = 10**6
"""What a rank that stays counts against a layer that is kept: more than any device has layers."""


@dataclass(frozen=True, slots=True)
class Holding:
    """The weights on a device: its part of each of these layers, of the embedding (`first`) and of the logits (`last`)."""

    part: tuple[int, ...]
    layers: frozenset[int]
    first: bool
    last: bool

    def keeps(self, before: Holding | None) -> frozenset[int]:
        """Layers whose part it has already."""
        return self.layers & before.layers if before is not None and before.part == self.part else frozenset()


@dataclass(frozen=True, slots=True)
class Moves:
    """How many ranks of the new plan find their weights on their device, of how many, and the weights that must be brought."""

    ranks: int
    staying: int
    nbytes: Bytes

    @property
    def moving(self) -> int:
        """Ranks that lack some of their weights."""
        return self.ranks - self.staying


def holdings(plan: Plan) -> dict[Device, Holding]:
    """What every device of a plan holds; replicas hold the same."""
    config, last = plan.config, plan.config.num_stages - 1
    found = {}
    for rank, device in enumerate(plan.placement):
        tp, dp_cp, place = config.place(rank)
        stages = plan.stages_of(place)
        layers = frozenset(n for stage in stages for n in range(plan.stages[stage].first, plan.stages[stage].past_last))
        found[device] = Holding((config.tp, tp, config.ep, dp_cp % config.ep), layers, 0 in stages, last in stages)
    return found


def moves(before: Plan, after: Plan, came: Mapping[Place, Place]) -> Moves:
    """What must move; `came` is the old place of each new one."""
    old, staying, nbytes = holdings(before), 0, 0.0
    for device, needs in holdings(after).items():
        has = old.get(_was(device, came))
        kept = needs.keeps(has)
        there = has if has is not None and has.part == needs.part else None
        lacks = len(needs.layers - kept)
        first, last = needs.first and not (there and there.first), needs.last and not (there and there.last)
        if not (lacks or first or last):
            staying += 1
            continue
        parameters = memory.by_sharing(after.workload, after.config, lacks, first, last)
        nbytes += after.workload.bytes_per_value * sum(number for _, number, _ in parameters)
    return Moves(after.config.world_size, staying, nbytes)


def _was(device: Device, came: Mapping[Place, Place]) -> Device:
    cluster, node = came[device.cluster, device.node]
    return Device(cluster, node, device.index)


def settled(before: Plan, after: Plan, came: Mapping[Place, Place]) -> Plan:
    """The new plan with its nodes on the machines that hold most of what they need; an equal plan, with the same promise."""
    old = holdings(before)
    new: dict[Place, list[tuple[int, Holding]]] = {}
    for device, needs in holdings(after).items():
        new.setdefault((device.cluster, device.node), []).append((device.index, needs))
    alike: dict[tuple[str, int], list[Place]] = {}
    for place in came:
        alike.setdefault((place[0], leaf(after.fleet, place)), []).append(place)
    goes: dict[Place, int] = {}
    for places in alike.values():
        worth = np.array([[_worth(new.get(a, []), b, came, old) + (a == b) for b in places] for a in places])
        goes |= {place: places[to][1] for place, to in zip(places, assigned(worth), strict=True)}
    placement = tuple(Device(d.cluster, goes[d.cluster, d.node], d.index) for d in after.placement)
    return after if placement == after.placement else replace(after, placement=placement)


def _worth(needed: list[tuple[int, Holding]], at: Place, came: Mapping[Place, Place], old: dict[Device, Holding]) -> int:
    """What a node of the plan finds on a machine: ranks that stay, then layers that are kept."""
    total = 0
    for index, needs in needed:
        has = old.get(_was(Device(*at, index), came))
        total += 2 * len(needs.keeps(has))
        if has is not None and has.part == needs.part and needs.layers <= has.layers:
            total += STAYS * (has.first >= needs.first and has.last >= needs.last)
    return total


def assigned(worth: NDArray[np.int64]) -> list[int]:
    """The column of each row, one each, of which the sum is most: shortest augmenting paths over dual prices."""
    size = len(worth)
    cost = worth.max() - worth
    rows, columns = np.zeros(size + 1, np.int64), np.zeros(size + 1, np.int64)
    match = np.full(size + 1, -1)  # row of each column; column `size` is where a path begins
    for row in range(size):
        match[size], at = row, size
        least, towards, used = np.full(size, np.iinfo(np.int64).max), np.full(size, size), np.zeros(size + 1, bool)
        while match[at] >= 0:
            used[at] = True
            reached = cost[match[at]] - rows[match[at]] - columns[:size]
            nearer = ~used[:size] & (reached < least)
            least[nearer], towards[nearer] = reached[nearer], at
            free = np.flatnonzero(~used[:size])
            to = int(free[least[free].argmin()])
            step = least[to]
            rows[match[used]] += step
            columns[used] -= step
            least[free] -= step
            at = to
        while at != size:
            match[at], at = match[towards[at]], int(towards[at])
    found = np.empty(size, np.int64)
    found[match[:size]] = np.arange(size)
    return [int(column) for column in found]
