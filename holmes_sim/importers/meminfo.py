"""Importer of Linux's /proc/meminfo: the memory of a host.

Format: lines `KEY: NUMBER kB`, of which MemTotal is read (Linux Documentation/filesystems/proc.rst: usable memory, without what
the kernel reserved at the start; kB are KiB).
"""

from __future__ import annotations

import re

from holmes_sim.importing.facts import Facts, HostMemory, Parts
from sim.errors import HolmesError
from sim.units import KIBI

NAME = "/proc/meminfo"
_START = re.compile(r"^MemTotal:(.*)$", re.MULTILINE)


def recognises(text: str) -> bool:
    """Whether a line begins with MemTotal."""
    return _START.search(text) is not None


def read(text: str, name: str) -> Facts:
    """The memory of the host. Raises HolmesError."""
    found = _START.search(text)
    assert found is not None
    where = f"{name}:{text.count(chr(10), 0, found.start()) + 1}"
    total = re.fullmatch(r"\s*(\d+) kB\s*", found[1])
    if total is None:
        raise HolmesError(f"{where}: MemTotal {found[1].strip()!r} is not a number of kB, such as '527954744 kB'")
    return Facts(name, parts=(Parts(host_memory=HostMemory(where, int(total[1]) * KIBI)),))
