"""The old plan after losses, without moving weights: the same stages on their remaining devices, with fewer replicas."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace

from planner.kept_ranks import KeptRanks
from planner.placement import simulation
from sim.errors import NoRoute, NotDefined
from sim.formats.lost_nodes import Place
from sim.hardware.cluster import Device, Fleet
from sim.hardware.topology import Topology
from sim.plan.groups import Group, groups_of
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan


def stayed(before: Plan, left: Topology, came: Mapping[Place, Place]) -> Plan | None:
    """The old plan with the most replicas that every stage still has, simulated; None where no such plan exists or fits.

    A stage keeps its first replicas, or those that no stage lost before others, whichever is faster; the devices of other
    replicas are idle. Replicas that divide experts among them stay or
    go together."""
    goes = {old: new for new, old in came.items()}
    devices = (_new_device(device, goes) for device in before.placement)
    kept = KeptRanks("", before.workload.model.name, before.config, before.stages, tuple(devices))
    for _, some in itertools.groupby(kept.placements(), key=lambda pair: pair[0]):
        plans = [plan for dp, placement in some if (plan := _on(before, left, kept, dp, placement)) is not None]
        if plans:
            return min(map(simulation.simulate_plan, plans), key=simulation.step)
    return None


def _on(before: Plan, left: Topology, kept: KeptRanks, dp: int, placement: tuple[Device, ...]) -> Plan | None:
    """The plan with dp replicas on some devices; None where it does not exist or fit."""
    config = kept.with_replicas(dp, sum(before.config.num_microbatches))
    try:
        groups = _groups_like(before, left.fleet, config, placement)
        plan = Plan(left, before.workload, config, before.stages, placement, groups, before.made_by)
    except (NoRoute, NotDefined):
        return None
    return plan if simulation.fits(plan) else None


def _new_device(device: Device, goes: Mapping[Place, Place]) -> Device | None:
    new = goes.get((device.cluster, device.node))
    return None if new is None else replace(device, cluster=new[0], node=new[1])


def _groups_like(before: Plan, fleet: Fleet, config: ParallelConfig, placement: tuple[Device, ...]) -> tuple[Group, ...]:
    """Groups of fewer replicas, with the collectives of the plan. Raises NoRoute."""
    chosen = {(group.kind, before.config.coordinates(group.ranks[0])[2]): group.collective for group in before.groups}
    return tuple(
        replace(group, collective=chosen.get((group.kind, config.coordinates(group.ranks[0])[2]), group.collective))
        for group in groups_of(fleet, config, placement)
    )
