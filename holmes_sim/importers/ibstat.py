"""Importer of `ibstat`: names, link layers and rates of the RDMA adapters of a node.

Format: infiniband-diags 44.0 src/ibstat.c: `CA 'mlx5_0'`, then `Port 1:` with State, Rate (Gbit/s) and Link layer. A port whose
link layer is Ethernet carries RoCE. Ports that are not Active are left out.
"""

from __future__ import annotations

import re

from holmes_sim.importing import ports
from holmes_sim.importing.facts import Facts, Parts
from holmes_sim.importing.ports import Port
from sim.errors import HolmesError

NAME = "ibstat"
_ADAPTER = re.compile(r"^\s*CA '([^']+)'\s*$")
_START = re.compile(r"^\s*CA '[^']+'\s*$", re.MULTILINE)
_PORT = re.compile(r"^\s*Port (\d+):\s*$")
_VALUE = re.compile(r"^\s*(State|Rate|Link layer):\s*(.*?)\s*$")


def recognises(text: str) -> bool:
    """Whether a line names an adapter."""
    return _START.search(text) is not None


def read(text: str, name: str) -> Facts:
    """The NICs of the node. Raises HolmesError."""
    adapter, where = "", f"{name}:1"
    found: list[tuple[str, str, dict[str, str]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if match := _ADAPTER.match(line):
            adapter, where = match[1], f"{name}:{number}"
        elif _PORT.match(line):
            found.append((adapter, where, {}))
        elif (match := _VALUE.match(line)) and found and found[-1][0] == adapter:
            found[-1][2][match[1]] = match[2]
    if not found:
        raise HolmesError(f"{where}: adapter {adapter!r} has no port; expected a line 'Port 1:' below it")
    nics, notes = ports.nics((_port(*one) for one in found), name)
    if not nics:
        raise HolmesError(f"{where}: no port is Active; give ibstat of a node whose fabric is up")
    return Facts(name, parts=(Parts(nics=nics),), notes=notes)


def _port(adapter: str, where: str, given: dict[str, str]) -> Port:
    """A port from its values. Raises HolmesError."""
    missing = [key for key in ("State", "Rate", "Link layer") if key not in given]
    if missing:
        raise HolmesError(f"{where}: adapter {adapter!r} has no line '{missing[0]}:'; give the whole output of ibstat")
    rate = re.match(r"\d+(?:\.\d+)?", given["Rate"])
    if rate is None:
        raise HolmesError(f"{where}: Rate {given['Rate']!r} of {adapter!r} is not a number of Gbit/s")
    kind = ports.TYPES.get(given["Link layer"].lower(), "")
    return Port(adapter, kind, float(rate[0]), given["State"] == "Active", where)
