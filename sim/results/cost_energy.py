"""Cost and energy of a step: rent and joules per token.

Nodes are rented and powered as a whole: all devices of every node with at least one rank count for the whole step. A device
draws its watts while it computes and its idle watts for the rest of the step, whether it waits for work, waits for the network,
or has no rank (the model of Perseus, arXiv 2312.06902, section 3: energy of computations + power while blocked x time blocked).
Communication that overlaps compute adds nothing.

The watts of the catalogue are the power limit of the board, so energy is an upper estimate of what the devices draw; hosts,
switches and cooling are not included.
"""

from __future__ import annotations

from collections.abc import Mapping

from sim.hardware.cluster import Cluster, Fleet
from sim.hardware.device_spec import DeviceSpec
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.units import JoulesPerToken, Seconds, UsdPerSecond, UsdPerToken, Watts

IDLE_SHARE = 0.25
"""Idle watts divided by watts of a device that does not specify its idle watts. Guess: the example of ml-energy/lowtime (the
solver of Perseus) has 85 W while blocked, on boards of 250 to 400 W. A larger share makes bubbles cost more energy."""


def idle_watts(device: DeviceSpec) -> Watts:
    """Power of a waiting device: its own value, or `IDLE_SHARE` of its watts, which must be known."""
    assert device.watts is not None
    return IDLE_SHARE * device.watts if device.idle_watts is None else device.idle_watts


def occupied(plan: Plan | PipelinesPlan) -> tuple[tuple[Cluster, int], ...]:
    """Clusters that a plan uses, each with the number of devices of its nodes that have a rank."""
    nodes: dict[str, set[int]] = {}
    for device in plan.placement:
        nodes.setdefault(device.cluster, set()).add(device.node)
    clusters = ((plan.fleet.cluster(name), len(found)) for name, found in nodes.items())
    return tuple((cluster, count * cluster.node.count) for cluster, count in clusters)


def rent(fleet: Fleet) -> UsdPerSecond | None:
    """Rent of a whole fleet, used or not: devices, and NICs and trunks that have a price; None if a device has no price."""
    found = 0.0
    for cluster in fleet.clusters:
        if cluster.node.device.price is None:
            return None
        nics = sum(nic.count * (nic.price or 0.0) for nic in cluster.node.nics)
        found += cluster.devices * cluster.node.device.price + cluster.nodes * nics
    return found + sum(trunk.price or 0.0 for trunk in fleet.trunks)


def occupied_rent(plan: Plan | PipelinesPlan) -> UsdPerSecond | None:
    """Rent of the devices of the nodes with a rank; None if one of them has no price."""
    found = 0.0
    for cluster, devices in occupied(plan):
        if cluster.node.device.price is None:
            return None
        found += devices * cluster.node.device.price
    return found


def usd_per_token(plan: Plan | PipelinesPlan, step: Seconds) -> UsdPerToken | None:
    """Rent of the occupied devices for a step, per token; None if one of them has no price."""
    paid = occupied_rent(plan)
    return None if paid is None else paid * step / plan.workload.tokens


def joules_per_token(plan: Plan | PipelinesPlan, step: Seconds, computed: Mapping[int, Seconds]) -> JoulesPerToken | None:
    """Energy of the occupied devices in a step, per token; None if one has no watts. `computed`: compute seconds by rank."""
    busy = dict.fromkeys((cluster.name for cluster, _ in occupied(plan)), 0.0)
    for rank, seconds in computed.items():
        busy[plan.placement[rank].cluster] += seconds
    joules = 0.0
    for cluster, devices in occupied(plan):
        device = cluster.node.device
        if device.watts is None:
            return None
        joules += busy[cluster.name] * device.watts + (devices * step - busy[cluster.name]) * idle_watts(device)
    return joules / plan.workload.tokens
