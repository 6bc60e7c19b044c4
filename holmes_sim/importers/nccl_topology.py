"""NCCL's topology of a node (NCCL_TOPO_DUMP_FILE; RCCL's alike): GPUs by PCI identity, NVLinks or xGMI, NICs with their rates.

Format: NVIDIA/nccl 2.30 src/graph/xml.cc. `class` of a PCI function is 0x0207 for InfiniBand, 0x0200 for Ethernet, 0x0208 for
Omni-Path, 0x03 for NVIDIA's and 0x12 for AMD's devices; `speed` is in Mbit/s. An Ethernet function carries RoCE where NCCL
uses it as an RDMA device (port 1 and up), TCP where it uses the interface by sockets (port 0; memory: net_socket.cc).
Files for NCCL_TOPO_FILE that clouds ship have PCI functions only. A dump of hosts that NVLink joins has several (host_hash);
one is read.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from xml.parsers import expat

from holmes_sim.importing import hardware
from holmes_sim.importing.facts import Devices, Facts, Joints, Nics, Parts
from sim.errors import HolmesError
from sim.units import BITS_PER_BYTE, MEGA

NAME = "NCCL topology XML"
_START = re.compile(r"<system\b[^>]*\bversion=")
FASTEST = 1_600_000
"""Mbit/s; no NIC is faster. Some libfabric providers report a rate in other units (ROCm/rccl topo_4p_942.xml: 200000000)."""
_GENERATIONS = {"8": 3, "16": 4, "32": 5}


@dataclass(frozen=True, slots=True)
class _Element:
    tag: str
    line: int
    given: dict[str, str]
    pci: dict[str, str]
    """The PCI function that it is part of."""
    host: str


def recognises(text: str) -> bool:
    """The root element `<system version=...>`."""
    return _START.search(text) is not None


def read(text: str, name: str) -> Facts:
    """Devices, how they are joined, NICs. Raises HolmesError."""
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
            raise HolmesError(f"{name}:1: no GPU and no NIC in it")
        nics = (Nics(f"{name}:{fabric[0].line}", "infiniband", count=len(fabric)),) if fabric else ()
        return Facts(name, parts=(Parts(devices=Devices(f"{name}:{bare[0].line}", count=len(bare)), nics=nics),))
    found, notes = _nics(nets, name)
    parts = Parts(devices=_devices(gpus, name), joints=_joints(gpus, elements, name), nics=found)
    return Facts(name, parts=(parts,), notes=tuple(notes))


def _elements(text: str, name: str) -> list[_Element]:
    """All elements in order. A document type, by which entities are declared, is refused."""
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
        raise HolmesError(f"{name}:{parser.CurrentLineNumber}: a document type is refused; NCCL writes none")

    parser.StartElementHandler, parser.EndElementHandler, parser.StartDoctypeDeclHandler = start, end, doctype
    try:
        parser.Parse(text, True)
    except expat.ExpatError as fault:
        raise HolmesError(f"{name}:{fault.lineno}: not well-formed XML: {expat.ErrorString(fault.code)}") from None
    return found


def _devices(gpus: list[_Element], name: str) -> Devices | None:
    if not gpus:
        return None
    identities = Counter((one.pci.get("vendor", ""), one.pci.get("device", "")) for one in gpus)
    if len(identities) > 1:
        kinds = ", ".join(f"{vendor}:{device}" for vendor, device in identities)
        raise HolmesError(f"{name}: GPUs of several kinds in one node ({kinds}); a node has one kind")
    (vendor, identity), _ = identities.popitem()
    label = f"PCI device {vendor}:{identity}" if identity else ""
    return Devices(f"{name}:{gpus[0].line}", hardware.pci_device(vendor, identity), label, len(gpus))


def _joints(gpus: list[_Element], elements: list[_Element], name: str) -> Joints | None:
    """By the first GPU: links through a switch add up, links to other GPUs are counted pair by pair."""
    if len(gpus) < 2:
        return None
    where, own = f"{name}:{gpus[0].line}", gpus[0].pci.get("busid")
    first = [one for one in elements if one.tag in ("nvlink", "xgmi") and one.pci.get("busid") == own]
    if not first:
        speed = re.match(r"\d+", gpus[0].pci.get("link_speed", ""))
        return Joints(where, "pcie", generation=_GENERATIONS.get(speed[0], 0) if speed else 0)
    counts = [_number(one, "count", name) for one in first]
    if first[0].given.get("tclass", "").startswith("0x0680"):
        return Joints(where, "nvlink", sum(counts), True)
    kind = "xgmi" if first[0].tag == "xgmi" else "nvlink"
    return Joints(where, kind, max(counts), len({one.given.get("target") for one in first}) == len(gpus) - 1)


def _nics(nets: list[_Element], name: str) -> tuple[tuple[Nics, ...], list[str]]:
    """NICs by type: of several rates the one that most have."""
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
            notes.append(f"{name}:{own[0].line}: speed {own[0].given['speed']} Mbit/s is no rate of a NIC; left out")
        where, names = f"{name}:{kept[0].line}", tuple(one.given["name"] for one in kept if one.given.get("name"))
        found.append(Nics(where, kind, most * MEGA / BITS_PER_BYTE, len(kept), names if len(names) == len(kept) else ()))
    if any(one.pci.get("vendor") == "0x1d0f" for one in nets):
        notes.append(f"{name}: EFA is taken for RoCE: the catalogue has no type of its own for it")
    return tuple(found), notes


def _kind(net: _Element) -> str:
    code, vendor = net.pci.get("class", ""), net.pci.get("vendor", "")
    if code.startswith("0x0207"):
        return "infiniband"
    if code.startswith("0x0208"):
        return "omni-path"
    if vendor == "0x17db" or net.given.get("name", "").startswith("cxi"):
        return "slingshot"
    return "ethernet" if net.given.get("port") == "0" else "roce"


def _rate(net: _Element, name: str) -> int:
    rate = _number(net, "speed", name) if "speed" in net.given else 0
    return rate if rate <= FASTEST else 0


def _number(one: _Element, key: str, name: str) -> int:
    text = one.given.get(key, "")
    if not text.isdecimal():
        raise HolmesError(f"{name}:{one.line}: {key}={text!r} of <{one.tag}> is no whole number")
    return int(text)
