"""Importer of `nvidia-smi topo -m`: how the GPUs of a node are joined, and the names of its RDMA devices.

Format: a matrix with header GPU0 ... and the cells X, NV# (number of bonded NVLinks), PIX, PXB, PHB, NODE, SYS (PCIe, by what
the path traverses), and a `NIC Legend` (older versions: mlx5_0 in the header itself). On a terminal the header may be
underlined. The matrix does not name the devices; `nvidia-smi -L` does, and its lines may be in the same file. MIG slices in
these lines are not devices.
"""

from __future__ import annotations

import re

from holmes_sim.importing import hardware
from holmes_sim.importing.facts import Devices, Facts, Interconnect, Nics, Parts
from sim.errors import HolmesError

NAME = "nvidia-smi topo -m"
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_HEADER = re.compile(r"^[ \t]*GPU0(?:[ \t]+\S.*)?$", re.MULTILINE)
_ROW = re.compile(r"^\s*GPU(\d+)\s+(?=X\b|NV\d+\b|PIX\b|PXB\b|PHB\b|NODE\b|SYS\b)(.*)$")
_CELL = re.compile(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS")
_LISTED = re.compile(r"^\s*GPU (\d+): (.+?) \(UUID")
_LEGEND = re.compile(r"^\s*NIC(\d+): (\S+)\s*$")
_RDMA = re.compile(r"(?:mlx|bnxt|irdma|rocep|ibp)\w+")


def recognises(text: str) -> bool:
    """Whether the text has a header line GPU0 ... and the row of GPU0."""
    stripped = _ESCAPE.sub("", text)
    return _HEADER.search(stripped) is not None and re.search(r"^\s*GPU0\s+X\b", stripped, re.MULTILINE) is not None


def read(text: str, name: str) -> Facts:
    """Number of GPUs, their NVLinks, and the names of the RDMA devices. Raises HolmesError."""
    lines = _ESCAPE.sub("", text).splitlines()
    start = next(number for number, line in enumerate(lines) if _HEADER.match(line))
    header = lines[start].split()
    gpus = sum(re.fullmatch(r"GPU\d+", word) is not None for word in header)
    rows: list[list[str]] = []
    for number, line in enumerate(lines[start + 1 :], start + 2):
        if match := _ROW.match(line):
            cells = match[2].split()[:gpus]
            if len(cells) < gpus or not all(_CELL.fullmatch(cell) for cell in cells) or cells.index("X") != len(rows):
                raise HolmesError(f"{name}:{number}: expected {gpus} cells of X, NV#, PIX, PXB, PHB, NODE or SYS")
            rows.append(cells)
    if len(rows) != gpus:
        raise HolmesError(f"{name}:{start + 1}: {gpus} GPUs in the header, {len(rows)} rows below it")
    where = f"{name}:{start + 1}"
    nics = _nics(lines, header, where)
    parts = Parts(devices=_devices(lines, name, gpus, where), interconnect=_interconnect(rows, where), nics=nics)
    return Facts(name, parts=(parts,))


def _devices(lines: list[str], name: str, gpus: int, where: str) -> Devices:
    """The GPUs of the node, with their name if `nvidia-smi -L` is in the file. Raises HolmesError."""
    listed = {match[1]: (match[2], number) for number, line in enumerate(lines, 1) if (match := _LISTED.match(line))}
    labels = {label for label, _ in listed.values()}
    if len(labels) > 1:
        raise HolmesError(f"{name}: GPUs of several kinds in one node ({', '.join(sorted(labels))}); a node has one kind")
    if not labels:
        return Devices(where, count=gpus)
    if len(listed) != gpus:
        raise HolmesError(
            f"{where}: {gpus} GPUs in the matrix, but {len(listed)} listed by nvidia-smi -L; both must be of one node"
        )
    label, number = next(iter(listed.values()))
    return Devices(f"{name}:{number}", hardware.device(label), label, gpus)


def _interconnect(rows: list[list[str]], where: str) -> Interconnect | None:
    """How the GPUs are joined, from the cells of the matrix; None for one GPU."""
    pairs = [cell for at, row in enumerate(rows) for other, cell in enumerate(row) if other != at]
    links = [int(cell[2:]) if cell.startswith("NV") else 0 for cell in pairs]
    if not pairs:
        return None
    if max(links) == 0:
        return Interconnect(where, "pcie")
    return Interconnect(where, "nvlink", max(links), min(links) > 0)


def _nics(lines: list[str], header: list[str], where: str) -> tuple[Nics, ...]:
    """Number and names of the RDMA devices, from the legend or the header; their type is unknown."""
    legend = [(int(match[1]), match[2]) for line in lines if (match := _LEGEND.match(line))]
    found = [name for _, name in sorted(legend)] or [word for word in header if _RDMA.fullmatch(word)]
    return (Nics(where, count=len(found), names=tuple(found)),) if found else ()
