"""Catalogue names of devices and links: devices by product name or PCI identity, links by how the devices are joined.

Product names are those that NVML and ROCm report, as nvidia-smi, nccl-tests and Kubernetes' gpu.product print them. PCI
identities: pci.ids 2023.04.10 (Debian bookworm); 2901 from later issues of it; 2335 NVIDIA/nccl-tests#256; 74a1 and 74b5 (a
virtual function of 74a1) ROCm/rccl tools/topo_expl/models/topo_8p_942vm.xml.
"""

from __future__ import annotations

import re

from holmes_sim.importing.facts import Interconnect

LABELS = {
    "a100-sxm4-40gb": "a100-sxm4-40gb", "a100-sxm4-80gb": "a100-sxm4-80gb", "a100-pcie-40gb": "a100-pcie-40gb",
    "a100-pcie-80gb": "a100-pcie-80gb", "a100-80gb-pcie": "a100-pcie-80gb", "a800-sxm4-80gb": "a800-sxm4-80gb",
    "h100-80gb-hbm3": "h100-sxm5-80gb", "h100-pcie": "h100-pcie-80gb", "h800": "h800-sxm5-80gb", "h200": "h200-sxm-141gb",
    "gh200-480gb": "gh200-96gb", "b200": "b200-sxm-180gb", "l40s": "l40s", "t4": "t4", "titan-rtx": "titan-rtx",
    "v100-sxm2-16gb": "v100-sxm2-16gb", "v100-sxm2-32gb": "v100-sxm2-32gb", "v100-sxm3-32gb": "v100-sxm3-32gb",
    "geforce-rtx-2080-ti": "rtx-2080-ti", "geforce-rtx-3080-ti": "rtx-3080-ti", "geforce-rtx-3090": "rtx-3090",
    "geforce-rtx-4090": "rtx-4090", "amd-instinct-mi210": "mi210", "amd-instinct-mi300x": "mi300x",
    "gb200": "gb200", "gb300": "gb300", "b300-sxm6-ac": "b300-sxm-270gb", "h20": "h20-96gb",
    "rtx-pro-6000-blackwell-server-edition": "rtx-pro-6000", "amd-instinct-mi325x": "mi325x", "amd-instinct-mi355x": "mi355x",
}  # fmt: skip
"""Product name without the vendor at its front -> device of the catalogue."""

PCI = {
    "10de:1db1": "v100-sxm2-16gb", "10de:1db5": "v100-sxm2-32gb", "10de:1db8": "v100-sxm3-32gb", "10de:1e02": "titan-rtx",
    "10de:1e04": "rtx-2080-ti", "10de:1e07": "rtx-2080-ti", "10de:1eb8": "t4", "10de:20b0": "a100-sxm4-40gb",
    "10de:20b2": "a100-sxm4-80gb", "10de:20b5": "a100-pcie-80gb", "10de:20f1": "a100-pcie-40gb", "10de:20f3": "a800-sxm4-80gb",
    "10de:2204": "rtx-3090", "10de:2208": "rtx-3080-ti", "10de:2324": "h800-sxm5-80gb", "10de:2330": "h100-sxm5-80gb",
    "10de:2331": "h100-pcie-80gb", "10de:2335": "h200-sxm-141gb", "10de:2684": "rtx-4090", "10de:2901": "b200-sxm-180gb",
    "1002:740f": "mi210", "1002:74a1": "mi300x", "1002:74b5": "mi300x",
}  # fmt: skip
"""PCI vendor:device -> device of the catalogue. The MI250X is left out: a PCI function is half of the catalogue's card."""

_NVLINKS: dict[str, tuple[tuple[int, bool, str], ...]] = {
    "v100-sxm2": ((6, True, "nvlink2-nvswitch"), (2, True, "nvlink2"), (2, False, "nvlink2")),
    "v100-sxm3": ((6, True, "nvlink2-nvswitch"),),
    "a100-sxm4": ((12, True, "nvlink3"),),
    "a800-sxm4": ((8, True, "nvlink3-a800"),),
    "a100-pcie": ((12, False, "nvlink3-bridge"), (12, True, "nvlink3-bridge")),
    "h100-pcie": ((12, False, "nvlink4-bridge"), (12, True, "nvlink4-bridge")),
    "h100-sxm5": ((18, True, "nvlink4"),),
    "h200-sxm": ((18, True, "nvlink4"),),
    "h800-sxm5": ((8, True, "nvlink4-h800"),),
    "gh200": ((6, True, "nvlink4-gh200x4"),),
    "b200-sxm": ((18, True, "nvlink5"),),
    "b300-sxm": ((18, True, "nvlink5"),),
    "gb200": ((18, True, "nvlink5"),),
    "gb300": ((18, True, "nvlink5"),),
    "h20": ((18, True, "nvlink4"),),
}
"""Device -> (NVLinks between a pair, whether every pair has them, link of the catalogue).

NV12 is HGX A100, NV18 HGX H100: stas00/ml-engineering network/README.md. Eight links on A800 and H800: aliyun/SimAI f5efb5a9
calbusbw.h. The hybrid cube mesh of V100 has one or two links between a pair. Bridges of PCIe cards have 12. All others come
from the catalogue's links.
"""

_XGMI = {"mi210": "infinity-fabric-3"} | dict.fromkeys(("mi300x", "mi325x", "mi355x"), "infinity-fabric-4")
"""Device -> link of the catalogue for xGMI."""
_GENERATIONS = {
    3: ("v100", "t4", "titan", "rtx-2080"),
    4: ("a100", "a800", "rtx-3", "rtx-4", "l40s", "mi210"),
    5: ("h", "b200", "rtx-pro"),
}
"""PCIe generation -> prefixes of the names of its devices (data sheets)."""
USUAL_LINKS = {
    "v100-sxm2": "nvlink2", "v100-sxm3": "nvlink2-nvswitch", "a100-sxm4": "nvlink3", "a800-sxm4": "nvlink3-a800",
    "h100-sxm5": "nvlink4", "h200-sxm": "nvlink4", "h800-sxm5": "nvlink4-h800", "gh200": "nvlink4-gh200x4",
    "b200-sxm": "nvlink5", "b300-sxm": "nvlink5", "gb200": "nvlink5", "gb300": "nvlink5", "h20": "nvlink4", **_XGMI,
}  # fmt: skip
"""Device -> the link on its usual board; a guess, used if no source gives the link."""


def device(label: str) -> str:
    """Device of the catalogue for a product name; empty if the catalogue has none. Spaces and hyphens are equivalent."""
    normalized = re.sub(r"[\s_]+", "-", label.strip().lower())
    return LABELS.get(re.sub(r"^(nvidia-|tesla-)+", "", normalized), "")


def pci_device(vendor: str, identity: str) -> str:
    """Device of the catalogue for a PCI identity (`0x10de`, `0x20b2`); empty if the catalogue has none."""
    return PCI.get(f"{vendor.lower().removeprefix('0x')}:{identity.lower().removeprefix('0x')}", "")


def link(name: str, interconnect: Interconnect) -> str:
    """Link of the catalogue for a device and how its devices are joined; empty if the catalogue has none."""
    if interconnect.kind == "pcie":
        return f"pcie{interconnect.generation}" if interconnect.generation in (3, 4, 5) else pcie_link(name)
    if interconnect.kind == "xgmi":
        return _XGMI.get(name, "")
    rows = next((rows for start, rows in _NVLINKS.items() if name.startswith(start)), ())
    return next(
        (found for links, all_pairs, found in rows if (links, all_pairs) == (interconnect.links, interconnect.all_pairs)), ""
    )


def usual_link(name: str) -> str:
    """The link on the usual board of a device (a guess)."""
    return next((found for start, found in USUAL_LINKS.items() if name.startswith(start)), pcie_link(name))


def pcie_link(name: str) -> str:
    """PCIe link of the device's generation; empty if the generation is unknown."""
    return next((f"pcie{number}" for number, starts in _GENERATIONS.items() if name.startswith(starts)), "")
