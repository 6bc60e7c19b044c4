"""Change: the devices of a cluster are replaced by their vendor's next generation, with its interconnect.

The file of a device in the catalogue names its successor (`next`). A price of the old devices is deleted, as it does not hold
for the new ones.
"""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.changes import Change
from sim.formats import catalog
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
        yield Change(f"{cluster.name}: {successor.device}, not {device}", edits)
