"""Pydantic models of what tells a device apart: its product names, the links of its boards, and its successor.

Simulation does not read them; importers and what-if do. The docstrings are descriptions in the JSON Schema.
"""

from __future__ import annotations

from sim.formats.fields import Count, Flag, StrictModel


class ProductFacts(StrictModel):
    """How other programs name a device. `names`: product names as its driver reports them, in small letters with hyphens,
    without `nvidia` and `tesla` at the front; `pci`: vendor:device of its PCI functions."""

    names: tuple[str, ...] = ()
    pci: tuple[str, ...] = ()


class NvlinkFacts(StrictModel):
    """A way to join devices by NVLink: `links` is the largest number of links between two devices, or, through a switch, from
    one device to all others; `all_pairs`: every pair has this many; `link`: the interconnect of the catalogue."""

    links: Count
    all_pairs: Flag
    link: str


class JoinFacts(StrictModel):
    """Interconnects of the catalogue that join devices of a node. `usual`: on the usual board; `pcie`: of the device's PCIe
    generation; `xgmi` and `nvlink`: where a source says that these join the devices."""

    usual: str = ""
    pcie: str = ""
    xgmi: str = ""
    nvlink: tuple[NvlinkFacts, ...] = ()


class NextFacts(StrictModel):
    """The device that replaces this one in `what-if`, and the interconnect of its nodes."""

    device: str
    intra_node: str
