"""Change: the devices of a cluster are replaced by their vendor's next generation, with its interconnect.

The file of a device in the catalogue names its successor (`next`). A price of the old devices is deleted, as it does not hold
for the new ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from holmes_sim.changes import Change
from sim.errors import TopologyError
from sim.formats import catalog
from sim.hardware.cluster import Cluster
from sim.hardware.topology import Topology


def of(topology: Topology) -> Iterator[Change]:
    """One change for each cluster whose devices have a successor in the catalogue; the number of devices in a node stays."""
    for cluster in topology.fleet.clusters:
        device = cluster.node.device.name
        successor = catalog.device_facts(device).next if device in catalog.names("devices") else None
        if successor is None:
            continue
        where = f"clusters.{cluster.name}.node"
        unpriced: tuple[tuple[str, object], ...] = ()
        if "price" in topology.facts()["clusters"][cluster.name]["node"]["devices"]:
            unpriced = ((f"{where}.devices.price", None),)
        edits = (*unpriced, (f"{where}.devices.type", successor.device), (f"{where}.intra_node", successor.intra_node))
        change = Change(f"{cluster.name}: {successor.device}, not {device}", edits)
        yield replace(change, adds=_adds(change, topology, cluster))


def _adds(change: Change, topology: Topology, old: Cluster) -> bool:
    """Whether the new devices and the interconnect of their nodes are at least as large and as fast as the old ones."""
    try:
        new = change.made(topology).fleet.cluster(old.name)
    except TopologyError:  # the menu leaves it out
        return False
    before, after = old.node.device, new.node.device
    peaks = dict(after.peak)
    return (
        all(peaks.get(precision, 0.0) >= peak for precision, peak in before.peak)
        and after.memory >= before.memory
        and after.memory_bandwidth >= before.memory_bandwidth
        and new.node.intra_node.bandwidth >= old.node.intra_node.bandwidth
    )
