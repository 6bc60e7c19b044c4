"""Importer of `lspci -nn`: the GPUs of a node by PCI identity; with -vv, devices whose PCIe link is slower than they allow.

Format: pciutils 3.9, `ADDRESS CLASS [CODE]: NAME [VENDOR:DEVICE]`, with -vv below it `LnkSta: Speed 16GT/s (downgraded), Width
x8 (downgraded)`. NICs are not counted: lspci has neither their rates nor whether a cable is in them (ibstat has both).
"""

from __future__ import annotations

import re
from collections import Counter

from holmes_sim.importing import hardware
from holmes_sim.importing.facts import Devices, Facts, Parts
from sim.errors import HolmesError

NAME = "lspci -nn"
_FUNCTION = re.compile(
    r"^\s*((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (.+?) \[([0-9a-f]{4})\]: (.+) \[([0-9a-f]{4}):([0-9a-f]{4})\]"
)
_START = re.compile(_FUNCTION.pattern, re.MULTILINE)
_STATE = re.compile(r"^\s*LnkSta:\s*(Speed .*downgraded.*?)\s*$")
GPUS = {"10de": ("0300", "0302"), "1002": ("0300", "0302", "0380", "1200")}
"""PCI vendor -> classes of its GPUs: VGA, 3D and display controllers, and processing accelerators."""
NICS = ("0200", "0207", "0208")
"""PCI classes of Ethernet, InfiniBand and Omni-Path."""


def recognises(text: str) -> bool:
    """Whether a line is a PCI function with class and identity."""
    return _START.search(text) is not None


def read(text: str, name: str) -> Facts:
    """The GPUs of the node. Raises HolmesError."""
    gpus: list[tuple[str, str, str, str]] = []
    notes: list[str] = []
    last = ""
    for number, line in enumerate(text.splitlines(), 1):
        if match := _FUNCTION.match(line):
            address, _, code, label, vendor, identity = match.groups()
            is_gpu = code in GPUS.get(vendor, ())
            last = f"{'GPU' if is_gpu else 'NIC'} {address}" if is_gpu or code in NICS else ""
            if is_gpu:
                gpus.append((vendor, identity, label, f"{name}:{number}"))
        elif last and (state := _STATE.match(line)):
            notes.append(f"{name}:{number}: the PCIe link of {last} is slower than it allows: {state[1]}")
    if not gpus:
        raise HolmesError(f"{name}:1: lists no GPU of NVIDIA or AMD; give the whole output of lspci -nn of a GPU node")
    kinds = Counter((vendor, identity) for vendor, identity, _, _ in gpus)
    if len(kinds) > 1:
        told = ", ".join(f"{vendor}:{identity}" for vendor, identity in kinds)
        raise HolmesError(f"{name}: GPUs of several kinds in one node ({told}); a node has one kind")
    vendor, identity, label, where = gpus[0]
    kind = hardware.pci_device(vendor, identity)
    return Facts(name, parts=(Parts(devices=Devices(where, kind, label, len(gpus))),), notes=tuple(notes))
