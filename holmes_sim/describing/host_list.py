"""Hosts that ssh reaches: a list of them is read, and all are asked at once.

A line has one host, or a host list such as gpu[01-16], optionally with `user@` in front and with words such as `slots=8` behind
it, as in hostfiles of MPI. `#` starts a comment.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from holmes_sim import importers
from holmes_sim.describing import host_probe
from holmes_sim.describing.host_probe import Run
from holmes_sim.imported import SourceText
from sim.errors import HolmesError, TopologyError
from sim.formats import hostlist
from sim.formats.documents import read_text

AT_ONCE = 32
"""Largest number of ssh connections at one time (a guess)."""
EXAMPLE = "write one host a line, such as 'gpu01' or 'gpu01 slots=8'"
_HOST = re.compile(r"(?:([A-Za-z0-9_][A-Za-z0-9_.-]*)@)?([A-Za-z0-9][A-Za-z0-9._-]*)")
_WORD = re.compile(r"[a-z][a-z-]*=\S+")
_SLOTS = re.compile(r"slots=(\d+)")


@dataclass(frozen=True, slots=True)
class ListedHost:
    """A host of a list: name, address for ssh, number of slots (0 if not given), and line."""

    name: str
    address: str
    slots: int
    where: str


def read(path: Path) -> tuple[ListedHost, ...]:
    """The hosts of a list. Raises HolmesError."""
    found: dict[str, ListedHost] = {}
    for number, line in enumerate(read_text(path, HolmesError).splitlines(), 1):
        words = line.split("#")[0].split()
        where = f"{path}:{number}"
        if not words:
            continue
        for word in words[1:]:
            if not _WORD.fullmatch(word):
                raise HolmesError(f"{where}: {word!r} is not understood; {EXAMPLE}")
        slots = next((int(match[1]) for word in words[1:] if (match := _SLOTS.fullmatch(word))), 0)
        for address in _addresses(words[0], where):
            match = _HOST.fullmatch(address)
            if match is None:
                raise HolmesError(f"{where}: {address!r} is not the name of a host; write for example gpu01 or me@gpu01")
            if match[2] in found:
                raise HolmesError(f"{where}: host {match[2]!r} is listed twice; first at {found[match[2]].where}")
            found[match[2]] = ListedHost(match[2], address, slots, where)
    if not found:
        raise HolmesError(f"{path}: lists no host; {EXAMPLE}")
    return tuple(found.values())


def _addresses(word: str, where: str) -> tuple[str, ...]:
    """The addresses of a host list. Raises HolmesError."""
    try:
        return hostlist.expand(word)
    except TopologyError as error:
        raise HolmesError(f"{where}: {error}") from None


def ask(hosts: Sequence[ListedHost], runs: Run = host_probe.run) -> tuple[tuple[SourceText, ...], tuple[str, ...]]:
    """(sources of all hosts, notes). Raises HolmesError with one line for each host that does not answer or has no GPU."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(lambda host: _asked(host, runs), hosts))
    faults = [answer for answer in answers if isinstance(answer, str)]
    if faults:
        raise HolmesError("\n".join(faults))
    texts = [text for answer in answers if not isinstance(answer, str) for text in answer]
    return tuple(texts), tuple(_other_slots(hosts, texts))


def _asked(host: ListedHost, runs: Run) -> tuple[SourceText, ...] | str:
    """The sources of a host, or what is wrong with it."""
    try:
        texts = host_probe.over_ssh(host.address, host.name, runs)
    except HolmesError as error:
        return f"{host.where}: {host.name} does not answer: {error}; ssh {host.address} must work without a password"
    if not host_probe.has_devices(texts):
        return f"{host.where}: {host.name} has no GPU that nvidia-smi or rocm-smi lists; leave it out of the list"
    return texts


def _other_slots(hosts: Sequence[ListedHost], texts: Sequence[SourceText]) -> list[str]:
    """A note for each host whose slots are not its number of devices."""
    counts: dict[str, int] = {}
    for text in texts:
        for parts in importers.recognised(text.text, text.name).read(text.text, text.name).parts:
            if parts.devices is not None:
                counts[text.host] = parts.devices.count
    return [
        f"{host.where}: slots={host.slots}, but {host.name} has {counts[host.name]} devices, which count"
        for host in hosts
        if host.slots and counts.get(host.name, host.slots) != host.slots
    ]
