"""Importer of Slurm's topology.conf and of `scontrol show topology`: switches or blocks, and the hosts below them.

Format: Slurm 26.11, man page topology.conf(5): lines of KEY=VALUE pairs, keys in any case, `#` starts a comment, hosts as host
lists. As in slurm.conf(5), a backslash at the end of a line continues it. scontrol adds Level, and gives switches above others
the hosts of all of them (22.05). LinkSpeed has no unit and is ignored.
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
"""Known keys, in lower case."""
BLOCKS = "blocks"
"""Name of the cluster of a block topology. Blocks are parts of one fabric, which Slurm does not name."""
_START = re.compile(r"^[ \t]*(?:SwitchName|BlockName|RingName)[ \t]*=", re.MULTILINE | re.IGNORECASE)


def recognises(text: str) -> bool:
    """Whether a line names a switch, a block or a ring."""
    return _START.search(text) is not None


def read(text: str, name: str) -> Facts:
    """The hosts and the switches above them. Raises HolmesError."""
    switches: dict[str, trees.Switch] = {}
    blocks: set[str] = set()
    for number, line in _lines(text):
        where, given = f"{name}:{number}", _pairs(line, f"{name}:{number}")
        if "ringname" in given:
            raise HolmesError(f"{where}: topology/ring is not supported; use topology/tree or topology/block")
        own = given.get("switchname") or given.get("blockname")
        if not own:
            if given.keys() - {"blocksizes", "blocksize"}:
                raise HolmesError(f"{where}: expected SwitchName=... or BlockName=... first")
            continue
        if own in switches:
            raise HolmesError(f"{where}: {own!r} is described twice; first at {switches[own].where}")
        switches[own] = trees.Switch(where, _names(given.get("switches", ""), where), _names(given.get("nodes", ""), where))
        blocks |= {own} if "blockname" in given else set()
    if blocks:
        rest = sorted(switches.keys() - blocks)
        if rest:
            raise HolmesError(
                f"{switches[rest[0]].where}: switch {rest[0]!r} in a file with blocks; a file has either switches or blocks"
            )
        switches[BLOCKS] = trees.Switch(f"{name}:1", tuple(switches))
    return Facts(name, trees.hosts(switches), coverage=SCHEDULER)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """(number of the first line, text) of each line without comments, continued lines joined."""
    start, whole = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        code = line.split("#")[0].rstrip()
        start, whole = start or number, whole + code.removesuffix("\\")
        if not code.endswith("\\"):
            yield start, whole
            start, whole = 0, ""
    if whole:
        yield start, whole


def _pairs(line: str, where: str) -> dict[str, str]:
    """The KEY=VALUE pairs of a line, keys in lower case. Raises HolmesError."""
    found: dict[str, str] = {}
    for word in line.split():
        key, equals, value = word.partition("=")
        if not equals or key.lower() not in KEYS | {"ringname"}:
            known = "SwitchName, Switches, Nodes, LinkSpeed, BlockName, BlockSizes"
            raise HolmesError(f"{where}: {word!r} is not a KEY=VALUE pair with a known key; known keys: {known}")
        found[key.lower()] = value
    return found


def _names(text: str, where: str) -> tuple[str, ...]:
    """Names of a host list. Raises HolmesError."""
    try:
        return hostlist.expand(text) if text and text != "(null)" else ()
    except TopologyError as error:
        raise HolmesError(f"{where}: {error}") from None
