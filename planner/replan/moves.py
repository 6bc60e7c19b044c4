"""Weights that move from one plan to another on the remaining nodes, and the placement that moves fewest.

Nodes of a cluster under one leaf switch are interchangeable: permuting them maps a plan onto an equal plan. `settled` returns
the permutation with which most ranks find the weights they need on their device, and of those the one that keeps most layers:
an assignment problem between the plan's nodes and the machines (Crouse, IEEE Transactions on Aerospace and Electronic Systems
52, 2016, as in scipy).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from sim.formats.lost_nodes import Place, leaf
from sim.hardware.cluster import Device
from sim.kernels import memory
from sim.plan.holdings import Holding, holdings
from sim.plan.plan import Plan
from sim.units import Bytes

STAYS = 10**6
"""Value of a rank that stays; a layer that is kept has value 2. Larger than the value of all layers of any device."""


@dataclass(frozen=True, slots=True)
class Moves:
    """Number of ranks of the new plan, of those that find all their weights on their device, and bytes of weights that move."""

    ranks: int
    staying: int
    nbytes: Bytes

    @property
    def moving(self) -> int:
        """Ranks that lack some of their weights."""
        return self.ranks - self.staying


def moves(before: Plan, after: Plan, came: Mapping[Place, Place]) -> Moves:
    """What must move between two plans; `came` maps each (cluster, node) of the new plan's fleet to its name in the old one."""
    old, new, staying, nbytes = holdings(before), holdings(after), 0, 0.0
    for rank, device in enumerate(after.placement):
        needs = new[device]
        has = old.get(_old_device(device, came))
        lacks, first, last = needs.lacks(has)
        if not (lacks or first or last):
            staying += 1
            continue
        config = after.config.of_pp_rank(after.config.coordinates(rank)[2])
        parameters = memory.by_sharing(after.workload, config, lacks, first, last)
        nbytes += after.workload.bytes_per_value * sum(number for _, number, _ in parameters)
        nbytes += memory.frozen_bytes(after.workload, config, lacks, first, last)
    return Moves(after.config.world_size, staying, nbytes)


def _old_device(device: Device, came: Mapping[Place, Place]) -> Device:
    cluster, node = came[device.cluster, device.node]
    return Device(cluster, node, device.index)


def settled(before: Plan, after: Plan, came: Mapping[Place, Place]) -> Plan:
    """The new plan with its nodes on the machines that hold most of their weights; an equal plan with the same prediction."""
    from scipy.optimize import linear_sum_assignment  # takes 0.3 s to import, which only `replan` needs

    old = holdings(before)
    new: dict[Place, list[tuple[int, Holding]]] = {}
    for device, needs in holdings(after).items():
        new.setdefault((device.cluster, device.node), []).append((device.index, needs))
    interchangeable: dict[tuple[str, int], list[Place]] = {}
    for node in came:
        interchangeable.setdefault((node[0], leaf(after.fleet, node)), []).append(node)
    goes: dict[Place, int] = {}
    for nodes in interchangeable.values():
        worth = np.array([[_worth(new.get(a, []), b, came, old) + (a == b) for b in nodes] for a in nodes])
        columns = linear_sum_assignment(worth, maximize=True)[1]
        goes |= {node: nodes[int(to)][1] for node, to in zip(nodes, columns, strict=True)}
    placement = tuple(Device(d.cluster, goes[d.cluster, d.node], d.index) for d in after.placement)
    return after if placement == after.placement else replace(after, placement=placement)


def _worth(needed: list[tuple[int, Holding]], at: Place, came: Mapping[Place, Place], old: dict[Device, Holding]) -> int:
    """Value of assigning a node of the plan to a machine: `STAYS` for each rank that stays, 2 for each layer that is kept."""
    total = 0
    for index, needs in needed:
        has = old.get(_old_device(Device(*at, index), came))
        total += 2 * len(needs.keeps(has))
        if has is not None and has.part == needs.part and needs.layers <= has.layers:
            total += STAYS * (has.first >= needs.first and has.last >= needs.last)
    return total
