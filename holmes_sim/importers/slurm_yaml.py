"""Importer of Slurm's topology.yaml: several named topologies, each a tree of switches, blocks, or flat.

Format: Slurm 26.11, man page topology.yaml(5). Topologies may overlap: the default topology comes first, and each later
topology adds the hosts that are in none before it. A flat topology lists no hosts. Rings and tori are not supported.
"""

from __future__ import annotations

import re
from typing import Any

from holmes_sim.importers.slurm_conf import BLOCKS
from holmes_sim.importing import trees
from holmes_sim.importing.facts import SCHEDULER, Facts, Host
from sim.errors import HolmesError, TopologyError
from sim.formats import hostlist
from sim.formats.documents import Document, KeyPath, parse

NAME = "Slurm topology.yaml"
_START = re.compile(r"^\s*-\s+topology\s*:", re.MULTILINE)


def recognises(text: str) -> bool:
    """Whether the text has a list item that starts with `topology:`."""
    return _START.search(text) is not None


def read(text: str, name: str) -> Facts:
    """The hosts and the switches above them. Raises HolmesError."""
    document = parse(name, text)
    if not isinstance(document.value, list) or not all(isinstance(item, dict) for item in document.value):
        raise HolmesError(f"{name}:1: expected a list of topologies, each with topology: NAME")
    order = sorted(range(len(document.value)), key=lambda index: document.value[index].get("cluster_default") is not True)  # type: ignore[index]
    several = sum("block" in item for item in document.value) > 1
    found: dict[str, Host] = {}
    notes: list[str] = []
    for index in order:
        item: dict[str, Any] = document.value[index]
        label = str(item.get("topology", index))
        hosts = trees.hosts(_switches(document, (index,), item, label if several else BLOCKS))
        again = [host.name for host in hosts if host.name in found]
        if again:
            notes.append(
                f"{name}: topology {label!r} has {len(again)} hosts of an earlier topology; the earlier topology is used"
            )
        found |= {host.name: host for host in hosts if host.name not in found}
    if not found:
        raise HolmesError(f"{name}:1: no topology lists hosts; expected a tree or blocks")
    return Facts(name, tuple(found.values()), coverage=SCHEDULER, notes=tuple(notes))


def _switches(document: Document, at: KeyPath, item: dict[str, Any], blocks: str) -> dict[str, trees.Switch]:
    """Switches of one topology by name; a block topology gets one switch, named `blocks`, above all blocks."""
    if "tree" in item:
        return _described(document, (*at, "tree", "switches"), item["tree"], "switch", "switches")
    if "block" in item:
        found = _described(document, (*at, "block", "blocks"), item["block"], "block", "blocks")
        return found | {blocks: trees.Switch(f"{document.name}:{document.line(at)}", tuple(found))}
    if "flat" in item:
        return {}
    kinds = ", ".join(sorted(map(str, item.keys() - {"topology", "cluster_default"}))) or "nothing"
    raise HolmesError(document.fault(at, f"expected tree, block or flat, not {kinds}"))


def _described(document: Document, at: KeyPath, section: Any, key: str, plural: str) -> dict[str, trees.Switch]:
    """Switches of a list section by name; `key` is the key of a name, `plural` that of the list."""
    rows = section.get(plural) if isinstance(section, dict) else None
    if not isinstance(rows, list):
        raise HolmesError(document.fault(at, f"expected a list of {plural}"))
    found: dict[str, trees.Switch] = {}
    for index, row in enumerate(rows):
        place = (*at, index)
        own = row.get(key) if isinstance(row, dict) else None
        if own is None:
            raise HolmesError(document.fault(place, f"expected {key}: NAME"))
        if str(own) in found:
            raise HolmesError(document.fault(place, f"{key} {own!r} is described twice"))
        children, nodes = (_names(document, (*place, part), row.get(part)) for part in ("children", "nodes"))
        found[str(own)] = trees.Switch(f"{document.name}:{document.line(place)}", children, nodes)
    return found


def _names(document: Document, at: KeyPath, text: Any) -> tuple[str, ...]:
    """Names of a host list. Raises HolmesError."""
    if text is None:
        return ()
    try:
        return hostlist.expand(str(text))
    except TopologyError as error:
        raise HolmesError(document.fault(at, str(error))) from None
