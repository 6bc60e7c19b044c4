"""Change: the devices of a cluster are replaced by their vendor's next generation, with its interconnect.

A price of the old devices is deleted, as it does not hold for the new ones.
"""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.changes import Change
from sim.hardware.topology import Topology

NEXT = {
    "v100": ("a100-sxm4-80gb", "nvlink3"),
    "a100-sxm4": ("h100-sxm5-80gb", "nvlink4"),
    "a100-pcie": ("h100-pcie-80gb", "pcie5"),
    "a800-sxm4": ("h800-sxm5-80gb", "nvlink4-h800"),
    "h100-sxm5": ("b200-sxm-180gb", "nvlink5"),
    "h200-sxm": ("b200-sxm-180gb", "nvlink5"),
    "mi210": ("mi300x", "infinity-fabric-4"),
    "mi250x": ("mi300x", "infinity-fabric-4"),
}
"""Prefix of a device name -> (device, interconnect) of the next generation. The pairs are our choice."""


def of(topology: Topology) -> Iterator[Change]:
    """One change for each cluster whose devices have a successor; the number of devices in a node stays."""
    for cluster in topology.fleet.clusters:
        device = cluster.node.device
        for begin, (successor, link) in NEXT.items():
            if device.name.startswith(begin):
                where = f"clusters.{cluster.name}.node"
                unpriced: tuple[tuple[str, object], ...] = ()
                if "price" in topology.facts()["clusters"][cluster.name]["node"]["devices"]:
                    unpriced = ((f"{where}.devices.price", None),)
                edits = (*unpriced, (f"{where}.devices.type", successor), (f"{where}.intra_node", link))
                yield Change(f"{cluster.name}: {successor}, not {device.name}", edits)
