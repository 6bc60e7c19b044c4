"""Importer of Slurm's `sinfo`: the hosts, and with a column GRES their devices.

Format: a table whose header has NODELIST (a host list), as of `sinfo -N -o "%N %G %T %m"` (Slurm 26.11, man page sinfo).
GRES has the devices of each host: `gpu:a100:8(S:0-1)` is eight of type a100. Types are names that the site chose; only full
product names, as of AutoDetect=nvml, are found in the catalogue. Hosts without GPUs are left out if others have some. MEMORY
(%m) is the RealMemory of the configuration in MiB, with a `+` the least of several hosts; it is 1 where nobody configured it.
"""

from __future__ import annotations

import re
from dataclasses import replace

from holmes_sim.importing import hardware
from holmes_sim.importing.facts import SCHEDULER, Devices, Facts, Host, HostMemory, Parts
from sim.errors import HolmesError, TopologyError
from sim.formats import hostlist
from sim.units import MEBI

NAME = "sinfo"
_HEADER = re.compile(r"^[ \t]*(?=.*\bNODELIST\b(?!\())(?=.*\b(?:PARTITION|GRES|STATE)\b)[A-Z0-9_ \t:/()]+$", re.MULTILINE)
_GRES = re.compile(r"gpu:(?:([A-Za-z][\w.-]*):)?(\d+)")
DOWN = ("down", "drain", "drng", "fail", "maint", "unk")
"""Beginnings of states in which a host runs no jobs."""


def recognises(text: str) -> bool:
    """Whether a line is a header with NODELIST and a column that sinfo prints beside it."""
    return _HEADER.search(text) is not None


def read(text: str, name: str) -> Facts:
    """The hosts and their devices. Raises HolmesError."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if _HEADER.match(line))
    keys = lines[start].split()
    hosts: dict[str, tuple[str, Devices | None]] = {}
    memory: dict[str, HostMemory] = {}
    down: dict[str, None] = {}
    for number, line in enumerate(lines[start + 1 :], start + 2):
        cells, where = line.split(), f"{name}:{number}"
        if not cells:
            break
        if len(cells) < len(keys):
            raise HolmesError(f"{where}: expected {len(keys)} columns ({' '.join(keys)}), found {len(cells)}")
        row = dict(zip(keys, cells, strict=False))
        for host in _hosts(row["NODELIST"], where):
            hosts.setdefault(host, (where, _devices(row.get("GRES", ""), where)))
            if own := _memory(row.get("MEMORY", ""), where):
                memory.setdefault(host, own)
            if row.get("STATE", "").lower().startswith(DOWN):
                down[host] = None
    found = _facts(name, start, hosts, tuple(down))
    kept = {host.name for host in found.hosts}
    sizes = tuple(Parts((host,), host_memory=own) for host, own in memory.items() if host in kept)
    return replace(found, parts=(*found.parts, *sizes))


def _facts(name: str, start: int, hosts: dict[str, tuple[str, Devices | None]], down: tuple[str, ...]) -> Facts:
    """The facts of all rows. Raises HolmesError if there is none."""
    if not hosts:
        raise HolmesError(f"{name}:{start + 1}: no host below the header")
    with_devices = {host: devices for host, (_, devices) in hosts.items() if devices is not None}
    kept = list(with_devices) or list(hosts)
    notes = []
    if len(kept) < len(hosts):
        left = hostlist.compress(host for host in hosts if host not in with_devices)
        notes.append(f"{name}: hosts without GPUs are left out: {', '.join(left)}")
    here = [host for host in down if host in kept]
    if here:
        notes.append(f"{name}: hosts that run no jobs now count as well: {', '.join(hostlist.compress(here))}")
    parts: dict[Devices, list[str]] = {}
    for host, devices in with_devices.items():
        parts.setdefault(devices, []).append(host)
    found = tuple(Parts(tuple(own), devices) for devices, own in parts.items())
    return Facts(name, tuple(Host(host, hosts[host][0]) for host in kept), SCHEDULER, found, notes=tuple(notes))


def _hosts(text: str, where: str) -> tuple[str, ...]:
    """Names of a host list. Raises HolmesError."""
    try:
        return hostlist.expand(text)
    except TopologyError as error:
        raise HolmesError(f"{where}: {error}") from None


def _memory(text: str, where: str) -> HostMemory | None:
    """Memory of a host; None where it is not configured."""
    size = text.removesuffix("+")
    return HostMemory(where, int(size) * MEBI) if size.isdecimal() and int(size) > 1 else None


def _devices(gres: str, where: str) -> Devices | None:
    """Devices of a host from its GRES; None without GPUs."""
    match = _GRES.search(gres)
    if match is None:
        return None
    label = match[1] or ""
    return Devices(where, hardware.device(label) if label else "", label, int(match[2]))
