"""Importer of NCCL's topology XML of a node (NCCL_TOPO_DUMP_FILE; also RCCL): GPUs, their links, and NICs with their rates.

Format: NVIDIA/nccl 2.30 src/graph/xml.cc. GPUs are identified by PCI vendor and device. `class` of a PCI function is 0x0207 for
InfiniBand, 0x0200 for Ethernet, 0x0208 for Omni-Path, 0x03 for NVIDIA's and 0x12 for AMD's devices; `speed` is in Mbit/s. An
Ethernet function carries RoCE if NCCL uses it as an RDMA device (port 1 and up), and TCP if NCCL uses it through sockets (port
0; 5067397c src/transport/net_socket.cc). Files for NCCL_TOPO_FILE that clouds ship contain PCI functions only. A dump of hosts
that are joined by NVLink contains several hosts (host_hash); one of them is read.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from xml.parsers import expat

from holmes_sim.importing import hardware
from holmes_sim.importing.facts import Devices, Facts, Interconnect, Nics, Parts
from sim.errors import HolmesError
from sim.units import BITS_PER_BYTE, MEGA

NAME = "NCCL topology XML"
_START = re.compile(r"<system\b[^>]*\bversion=")
FASTEST = 1_600_000
"""Upper limit of a credible NIC rate in Mbit/s; larger rates count as unknown. Some libfabric providers report rates in another
unit (ROCm/rccl topo_4p_942.xml: 200000000).
"""
_GENERATIONS = {"8": 3, "16": 4, "32": 5}
"""Link speed of a PCIe device in GT/s -> PCIe generation."""


@dataclass(frozen=True, slots=True)
class _Element:
    """An XML element: tag, line, attributes, attributes of the PCI function that contains it, and host."""

    tag: str
    line: int
    given: dict[str, str]
    pci: dict[str, str]
    host: str


def recognises(text: str) -> bool:
    """Whether the text has the root element `<system version=...>`."""
    return _START.search(text) is not None


def read(text: str, name: str) -> Facts:
    """Devices of the node, the links between them, and its NICs. Raises HolmesError."""
    everything = _elements(text, name)
    host = max(one.host for one in everything)
    elements = [one for one in everything if one.host in ("", host)]
    gpus = [one for one in elements if one.tag == "gpu"]
    functions = [one for one in elements if one.tag == "pci"]
    nets = [one for one in elements if one.tag == "net"]
    if not gpus and not nets:
        bare = [one for one in functions if one.given.get("class", "")[:4] in ("0x03", "0x12")]
        fabric = [one for one in functions if one.given.get("class", "").startswith("0x0207")]
        if not bare:
            raise HolmesError(f"{name}:1: the file describes no GPU and no NIC")
        nics = (Nics(f"{name}:{fabric[0].line}", "infiniband", count=len(fabric)),) if fabric else ()
        return Facts(name, parts=(Parts(devices=Devices(f"{name}:{bare[0].line}", count=len(bare)), nics=nics),))
    found, notes = _nics(nets, name)
    parts = Parts(devices=_devices(gpus, name), interconnect=_interconnect(gpus, elements, name), nics=found)
    return Facts(name, parts=(parts,), notes=tuple(notes))


def _elements(text: str, name: str) -> list[_Element]:
    """All elements in document order. Raises HolmesError for a DOCTYPE, since it could declare entities."""
    parser = expat.ParserCreate()
    found: list[_Element] = []
    inside: list[tuple[dict[str, str], str]] = []

    def start(tag: str, given: dict[str, str]) -> None:
        pci, host = inside[-1] if inside else ({}, "")
        inside.append((given if tag == "pci" else pci, given.get("host_hash", host)))
        found.append(_Element(tag, parser.CurrentLineNumber, given, *inside[-1]))

    def end(tag: str) -> None:
        inside.pop()

    def doctype(*_: object) -> None:
        raise HolmesError(f"{name}:{parser.CurrentLineNumber}: DOCTYPE is not allowed; NCCL does not write one")

    parser.StartElementHandler, parser.EndElementHandler, parser.StartDoctypeDeclHandler = start, end, doctype
    try:
        parser.Parse(text, True)
    except expat.ExpatError as fault:
        raise HolmesError(f"{name}:{fault.lineno}: not well-formed XML: {expat.ErrorString(fault.code)}") from None
    return found


def _devices(gpus: list[_Element], name: str) -> Devices | None:
    """The GPUs of the node; None if there are none. Raises HolmesError if they are of several kinds."""
    if not gpus:
        return None
    identities = Counter((one.pci.get("vendor", ""), one.pci.get("device", "")) for one in gpus)
    if len(identities) > 1:
        kinds = ", ".join(f"{vendor}:{device}" for vendor, device in identities)
        raise HolmesError(f"{name}: GPUs of several kinds in one node ({kinds}); a node has one kind")
    (vendor, identity), _ = identities.popitem()
    label = f"PCI device {vendor}:{identity}" if identity else ""
    return Devices(f"{name}:{gpus[0].line}", hardware.pci_device(vendor, identity), label, len(gpus))


def _interconnect(gpus: list[_Element], elements: list[_Element], name: str) -> Interconnect | None:
    """How the GPUs are joined, from the links of the first GPU; None for fewer than two GPUs.

    Links through a switch are added up; for direct links the largest number to one other GPU counts.
    """
    if len(gpus) < 2:
        return None
    where, own = f"{name}:{gpus[0].line}", gpus[0].pci.get("busid")
    first = [one for one in elements if one.tag in ("nvlink", "xgmi") and one.pci.get("busid") == own]
    if not first:
        speed = re.match(r"\d+", gpus[0].pci.get("link_speed", ""))
        return Interconnect(where, "pcie", generation=_GENERATIONS.get(speed[0], 0) if speed else 0)
    counts = [_number(one, "count", name) for one in first]
    if first[0].given.get("tclass", "").startswith("0x0680"):
        return Interconnect(where, "nvlink", sum(counts), True)
    kind = "xgmi" if first[0].tag == "xgmi" else "nvlink"
    return Interconnect(where, kind, max(counts), len({one.given.get("target") for one in first}) == len(gpus) - 1)


def _nics(nets: list[_Element], name: str) -> tuple[tuple[Nics, ...], list[str]]:
    """(NICs by type, notes). If NICs of one type have several rates, only those of the most frequent rate count."""
    found: list[Nics] = []
    notes: list[str] = []
    kinds = [_kind(one) for one in nets]
    for kind in dict.fromkeys(kinds):
        own = [one for one, its in zip(nets, kinds, strict=True) if its == kind]
        rates = [_rate(one, name) for one in own]
        most = Counter(rates).most_common(1)[0][0]
        kept = [one for one, rate in zip(own, rates, strict=True) if rate == most]
        if len(kept) < len(own):
            left = ", ".join(one.given.get("name", "?") for one in own if one not in kept)
            notes.append(f"{name}: {kind} NICs of several rates; left out: {left}")
        if max(rates) == 0 and any(one.given.get("speed", "0") not in ("0", "") for one in own):
            notes.append(
                f"{name}:{own[0].line}: speed {own[0].given['speed']} Mbit/s is not a credible rate of a NIC; left out"
            )
        where, names = f"{name}:{kept[0].line}", tuple(one.given["name"] for one in kept if one.given.get("name"))
        found.append(Nics(where, kind, most * MEGA / BITS_PER_BYTE, len(kept), names if len(names) == len(kept) else ()))
    return tuple(found), notes


def _kind(net: _Element) -> str:
    """NIC type of a network device, from the class and vendor of its PCI function."""
    code, vendor = net.pci.get("class", ""), net.pci.get("vendor", "")
    if code.startswith("0x0207"):
        return "infiniband"
    if code.startswith("0x0208"):
        return "omni-path"
    if vendor == "0x17db" or net.given.get("name", "").startswith("cxi"):
        return "slingshot"
    if net.given.get("port") == "0":
        return "ethernet"
    return "efa" if vendor == "0x1d0f" else "roce"


def _rate(net: _Element, name: str) -> int:
    """Rate of a network device in Mbit/s; 0 if unknown or not credible."""
    rate = _number(net, "speed", name) if "speed" in net.given else 0
    return rate if rate <= FASTEST else 0


def _number(one: _Element, key: str, name: str) -> int:
    """An attribute as an integer. Raises HolmesError."""
    text = one.given.get(key, "")
    if not text.isdecimal():
        raise HolmesError(f"{name}:{one.line}: {key}={text!r} of <{one.tag}> is not a whole number")
    return int(text)
