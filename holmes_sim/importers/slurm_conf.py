"""Slurm's topology.conf, and what `scontrol show topology` prints: switches or blocks, and the hosts under them.

Format: Slurm 26.11, man page topology.conf(5): KEY=VALUE pairs of a line, keys in any case, `#` starts a comment, host lists.
As in slurm.conf(5), a line that ends with a backslash goes on in the next. scontrol adds Level, and to a switch above
others the hosts of all of them (22.05). LinkSpeed has no unit and is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from holmes_sim.importing import trees
from holmes_sim.importing.facts import SCHEDULER, Facts
from sim.errors import HolmesError, TopologyError
from sim.formats import hostlist

NAME = "Slurm topology.conf or scontrol show topology"
KEYS = {"switchname", "switches", "nodes", "linkspeed", "level", "blockname", "blocksizes", "blocksize", "blockindex"}
BLOCKS = "blocks"
"""What the cluster of a block topology is called: blocks are parts of one fabric, which bears no name."""
_START = re.compile(r"^[ \t]*(?:SwitchName|BlockName|RingName)[ \t]*=", re.MULTILINE | re.IGNORECASE)


def recognises(text: str) -> bool:
    """A line that names a switch, a block or a ring."""
    return _START.search(text) is not None


def read(text: str, name: str) -> Facts:
    """The hosts and their switches. Raises HolmesError."""
    switches: dict[str, trees.Switch] = {}
    blocks: set[str] = set()
    for number, line in _lines(text):
        where, given = f"{name}:{number}", _pairs(line, f"{name}:{number}")
        if "ringname" in given:
            raise HolmesError(f"{where}: topology/ring is not read; topology/tree and topology/block are")
        own = given.get("switchname") or given.get("blockname")
        if not own:
            if given.keys() - {"blocksizes", "blocksize"}:
                raise HolmesError(f"{where}: SwitchName=... or BlockName=... is expected first")
            continue
        if own in switches:
            raise HolmesError(f"{where}: {own!r} is described twice; {switches[own].where} has it already")
        switches[own] = trees.Switch(where, _names(given.get("switches", ""), where), _names(given.get("nodes", ""), where))
        blocks |= {own} if "blockname" in given else set()
    if blocks:
        rest = sorted(switches.keys() - blocks)
        if rest:
            raise HolmesError(f"{switches[rest[0]].where}: switch {rest[0]!r} stands among blocks; a file has one kind of them")
        switches[BLOCKS] = trees.Switch(f"{name}:1", tuple(switches))
    return Facts(name, trees.hosts(switches), census=SCHEDULER)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """(number, line) without comments, continued lines in one."""
    start, whole = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        plain = line.split("#")[0].rstrip()
        start, whole = start or number, whole + plain.removesuffix("\\")
        if not plain.endswith("\\"):
            yield start, whole
            start, whole = 0, ""
    if whole:
        yield start, whole


def _pairs(line: str, where: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in line.split():
        key, equals, value = word.partition("=")
        if not equals or key.lower() not in KEYS | {"ringname"}:
            known = "SwitchName, Switches, Nodes, LinkSpeed, BlockName, BlockSizes"
            raise HolmesError(f"{where}: {word!r} is none of KEY=VALUE; known keys: {known}")
        found[key.lower()] = value
    return found


def _names(text: str, where: str) -> tuple[str, ...]:
    try:
        return hostlist.expand(text) if text and text != "(null)" else ()
    except TopologyError as error:
        raise HolmesError(f"{where}: {error}") from None
