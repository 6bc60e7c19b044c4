"""Machines whose communication takes no time, and the seconds of layers on them."""

from __future__ import annotations

from dataclasses import replace

from sim.hardware.cluster import Fleet
from sim.kernels import compute
from sim.plan.plan import Plan
from tests import builders
from tests.builders import wire

FREE = 1e40
"""A bandwidth at which nothing takes time."""


def free_wires() -> Fleet:
    """Eight nodes of eight devices, and communication that takes no time."""
    fast = builders.cluster(nodes=8, devices=8, nics=(builders.nic(bandwidth=FREE),), intra_node=wire(bandwidth=FREE))
    return builders.fleet(replace(fast, node=replace(fast.node, device=replace(fast.node.device, host_bandwidth=FREE))))


def slot(plan: Plan, layers: int) -> float:
    """Forward and backward of `layers` layers and one microbatch."""
    device = plan.fleet.spec(plan.placement[0])
    return layers * sum(compute.layer_seconds(device, plan.workload, plan.config))
