"""Catalogue names of devices and links: devices by product name or PCI identity, links by how the devices are joined.

Product names are those that NVML and ROCm report, as nvidia-smi, nccl-tests and Kubernetes' gpu.product print them. Names,
identities and links are in the file of each device in the catalogue (`sim.formats.product_facts`), with their sources.
"""

from __future__ import annotations

import functools
import re

from holmes_sim.importing.facts import Interconnect
from sim.formats import catalog


@functools.cache
def _by_name() -> dict[str, str]:
    """Product name -> device of the catalogue."""
    return {name: device for device in catalog.names("devices") for name in catalog.device_facts(device).product.names}


@functools.cache
def _by_pci() -> dict[str, str]:
    """PCI vendor:device -> device of the catalogue."""
    return {identity: device for device in catalog.names("devices") for identity in catalog.device_facts(device).product.pci}


def device(label: str) -> str:
    """Device of the catalogue for a product name; empty if the catalogue has none. Spaces and hyphens are equivalent."""
    normalized = re.sub(r"[\s_]+", "-", label.strip().lower())
    return _by_name().get(re.sub(r"^(nvidia-|tesla-)+", "", normalized), "")


def pci_device(vendor: str, identity: str) -> str:
    """Device of the catalogue for a PCI identity (`0x10de`, `0x20b2`); empty if the catalogue has none."""
    return _by_pci().get(f"{vendor.lower().removeprefix('0x')}:{identity.lower().removeprefix('0x')}", "")


def link(name: str, interconnect: Interconnect) -> str:
    """Link of the catalogue for a device and how its devices are joined; empty if the catalogue has none."""
    if interconnect.kind == "pcie":
        return f"pcie{interconnect.generation}" if interconnect.generation in (3, 4, 5) else pcie_link(name)
    joins = catalog.device_facts(name).intra_node
    if interconnect.kind == "xgmi":
        return joins.xgmi
    same = (one for one in joins.nvlink if (one.links, one.all_pairs) == (interconnect.links, interconnect.all_pairs))
    return next((one.link for one in same), "")


def usual_link(name: str) -> str:
    """The link on the usual board of a device (a guess), else its PCIe link."""
    return catalog.device_facts(name).intra_node.usual or pcie_link(name)


def pcie_link(name: str) -> str:
    """PCIe link of the device's generation; empty if the generation is unknown."""
    return catalog.device_facts(name).intra_node.pcie
