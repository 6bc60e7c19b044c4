"""Change: the devices of a cluster have more memory."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.changes import LARGER, Change
from sim.hardware.topology import Topology
from sim.units import size_text


def of(topology: Topology) -> Iterator[Change]:
    """Several sizes for each cluster."""
    for cluster in topology.fleet.clusters:
        device = cluster.node.device
        for factor in LARGER:
            larger = size_text(factor * device.memory)
            name = f"{cluster.name}: {larger} of memory a device, not {size_text(device.memory)}"
            edits = ((f"clusters.{cluster.name}.node.devices.type.memory", larger),)
            yield Change(name, edits, adds=True, family=f"{cluster.name}: memory")
