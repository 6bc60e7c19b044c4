"""NICs that are faster than the PCIe slots of their node.

A topology does not give the slots of NICs. The check assumes that they are like those of the devices: `host_bandwidth` of the
catalogue, of which large copies reach `PCIE_EFFICIENCY`.
"""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.findings import Finding, Subject
from sim.network.paths import PCIE_EFFICIENCY, near_nics
from sim.units import bytes_per_second_text, rate_text


def findings(subject: Subject) -> Iterator[Finding]:
    """One finding for each NIC type that exceeds a slot, alone or with the other NICs near to one device."""
    for cluster in subject.topology.fleet.clusters:
        node = cluster.node.host
        slot = node.device.host_bandwidth * PCIE_EFFICIENCY
        of = f"{rate_text(slot)}, {PCIE_EFFICIENCY:.0%} of the {bytes_per_second_text(node.device.host_bandwidth)} of PCIe"
        for index, nic in enumerate(node.nics):
            path = ("clusters", cluster.name, "node", "nics", index, "bandwidth")
            near = len(near_nics(node.count, nic.count, 0))
            if nic.bandwidth > slot:
                yield Finding(
                    path,
                    f"a NIC of {rate_text(nic.bandwidth)} is faster than a slot like that of {node.device.name} ({of})",
                    "where several devices share the NIC, plans count on a rate that its slot may not carry",
                    f"the rate that the slot carries, {rate_text(slot)}; nothing if the NIC has a faster slot than the devices",
                )
            elif near * nic.bandwidth > slot:
                yield Finding(
                    path,
                    f"{near} NICs of {rate_text(nic.bandwidth)} are near to each {node.device.name}, whose link to the host "
                    f"carries less ({of})",
                    f"a device sends {rate_text(slot)} at most, so that the NICs are never full",
                    "nothing if the file is right; fewer NICs would do as well",
                )
