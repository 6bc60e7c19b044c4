"""Ports of RDMA adapters -> NICs by type, for sources that list ports one by one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from holmes_sim.importing.facts import Nics
from sim.units import BITS_PER_BYTE, GIGA

TYPES = {"infiniband": "infiniband", "ethernet": "roce"}
"""Link layer of an RDMA port, in small letters -> NIC type."""


@dataclass(frozen=True, slots=True)
class Port:
    """A port: name of its device or interface, NIC type (empty if unknown), rate in Gbit/s, and whether it is active."""

    name: str
    type: str
    gbit: float
    active: bool
    where: str


def nics(ports: Iterable[Port], name: str) -> tuple[tuple[Nics, ...], tuple[str, ...]]:
    """(NICs by type, notes) of the active ports. If ports of one type have several rates, only those of the most frequent rate
    count, the faster one if two are equally frequent.
    """
    every = sorted(ports, key=lambda port: _natural(port.name))
    found: list[Nics] = []
    notes: list[str] = []
    idle = [port.name for port in every if not port.active]
    if idle:
        notes.append(f"{name}: ports that are not active are left out: {', '.join(idle)}")
    for kind in dict.fromkeys(port.type for port in every if port.type):
        own = [port for port in every if port.active and port.type == kind]
        if not own:
            continue
        rates = Counter(port.gbit for port in own)
        rate = max(rates, key=lambda one: (rates[one], one))
        kept = [port for port in own if port.gbit == rate]
        if len(kept) < len(own):
            left = ", ".join(f"{port.name} ({port.gbit:g} Gbit/s)" for port in own if port.gbit != rate)
            notes.append(f"{name}: {kind} NICs of several rates; {rate:g} Gbit/s is kept; left out: {left}")
        names = tuple(port.name for port in kept)
        found.append(Nics(kept[0].where, kind, rate * GIGA / BITS_PER_BYTE, len(kept), names))
    return tuple(found), tuple(notes)


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """Sort key that puts mlx5_2 before mlx5_10."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name))
