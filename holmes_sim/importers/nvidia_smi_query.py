"""Importer of `nvidia-smi --query-gpu=name,memory.total --format=csv`: names and memory of the GPUs of a node.

Format: a header of the queried properties, `memory.total [MiB]` among them, then one line per GPU. Further properties may be
queried. The memory tells variants of a device apart that have one name.
"""

from __future__ import annotations

import re

from holmes_sim.importing import hardware
from holmes_sim.importing.facts import Devices, Facts, Parts
from sim.errors import HolmesError
from sim.formats import catalog
from sim.units import GIBI, MEBI

NAME = "nvidia-smi --query-gpu"
_HEADER = re.compile(r"^(?=.*\bname\b)(?:[a-z_.]+(?: \[[^\]]*\])?)(?:, [a-z_.]+(?: \[[^\]]*\])?)+$", re.MULTILINE)
TOLERANCE = 0.08
"""Share by which the memory that the driver reports may differ from the catalogue's (a guess: ECC and reserved memory take
4 % of an L40S, 6 % of a T4)."""


def recognises(text: str) -> bool:
    """Whether a line is a header of queried properties with a name and the memory."""
    match = _HEADER.search(text)
    return match is not None and "memory.total" in match[0]


def read(text: str, name: str) -> Facts:
    """The GPUs of the node. Raises HolmesError."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if _HEADER.match(line))
    keys = [key.split(" [")[0] for key in lines[start].split(", ")]
    rows: list[tuple[str, str, str]] = []
    for number, line in enumerate(lines[start + 1 :], start + 2):
        if not line.strip():
            break
        cells = line.split(", ")
        if len(cells) != len(keys):
            raise HolmesError(f"{name}:{number}: expected {len(keys)} values ({', '.join(keys)}), found {len(cells)}")
        rows.append((cells[keys.index("name")].strip(), cells[keys.index("memory.total")].strip(), f"{name}:{number}"))
    if not rows:
        raise HolmesError(f"{name}:{start + 1}: no GPU below the header")
    labels = sorted({label for label, _, _ in rows})
    if len(labels) > 1:
        raise HolmesError(f"{name}: GPUs of several kinds in one node ({', '.join(labels)}); a node has one kind")
    kind = hardware.device(labels[0])
    parts = Parts(devices=Devices(rows[0][2], kind, labels[0], len(rows)))
    return Facts(name, parts=(parts,), notes=_other_memory(kind, rows[0][1], rows[0][2]))


def _other_memory(kind: str, memory: str, where: str) -> tuple[str, ...]:
    """A note if the device of the catalogue has another memory than the driver reports."""
    match = re.match(r"(\d+)", memory)
    if not kind or match is None:
        return ()
    known, here = catalog.device_facts(kind).memory, int(match[1]) * MEBI
    if abs(here / known - 1) <= TOLERANCE:
        return ()
    return (f"{where}: the driver reports {here / GIBI:.4g} GiB, {kind} of the catalogue has {known / GIBI:.4g} GiB",)
