"""Change: the devices of a cluster have twice the memory."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.changes import Change
from sim.hardware.topology import Topology
from sim.units import size_text


def of(topology: Topology) -> Iterator[Change]:
    """One change for each cluster."""
    for cluster in topology.fleet.clusters:
        device = cluster.node.device
        larger = size_text(2 * device.memory)
        name = f"{cluster.name}: {larger} of memory a device, not {size_text(device.memory)}"
        yield Change(name, ((f"clusters.{cluster.name}.node.devices.type.memory", larger),))
