"""Importer of `rocm-smi --showproductname`: names and number of the GPUs of a node.

Format: lines `GPU[0] : Card Series: AMD Instinct MI300X` and `GPU[0] : Card Model: 0x74a1`, the PCI device (ROCm/rocm_smi_lib
python_smi_tools/rocm_smi.py; capital letters differ by version). The PCI device counts more than the name.
"""

from __future__ import annotations

import re

from holmes_sim.importing import hardware
from holmes_sim.importing.facts import Devices, Facts, Parts
from sim.errors import HolmesError

NAME = "rocm-smi --showproductname"
_LINE = re.compile(r"^\s*GPU\[(\d+)\]\s*:\s*Card (series|model):\s*(\S.*?)\s*$", re.IGNORECASE)
_START = re.compile(r"^\s*GPU\[\d+\]\s*:\s*Card series:", re.MULTILINE | re.IGNORECASE)
_AMD = "0x1002"
"""PCI vendor of AMD."""


def recognises(text: str) -> bool:
    """Whether a line names the series of a GPU."""
    return _START.search(text) is not None


def read(text: str, name: str) -> Facts:
    """The GPUs of the node. Raises HolmesError."""
    series: dict[str, str] = {}
    models: dict[str, str] = {}
    where = ""
    for number, line in enumerate(text.splitlines(), 1):
        if match := _LINE.match(line):
            (series if match[2].lower() == "series" else models)[match[1]] = match[3]
            where = where or f"{name}:{number}"
    if not series:
        raise HolmesError(f"{name}:1: no GPU has a Card series; give the whole output of {NAME}")
    labels = sorted(set(series.values()))
    if len(labels) > 1:
        raise HolmesError(f"{name}: GPUs of several kinds in one node ({', '.join(labels)}); a node has one kind")
    known = {hardware.pci_device(_AMD, model) for model in models.values() if model.startswith("0x")} - {""}
    kind = known.pop() if len(known) == 1 else hardware.device(labels[0])
    return Facts(name, parts=(Parts(devices=Devices(where, kind, labels[0], len(series))),))
