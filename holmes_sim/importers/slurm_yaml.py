"""Slurm's topology.yaml: several topologies by name, each a tree of switches, blocks, or flat.

Format: Slurm 26.11, man page topology.yaml(5). Topologies may overlap: the default one comes first, a later one adds the
hosts that none before it has. A flat one has no hosts of its own; rings and tori are not read.
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
    """A list whose items start with `topology:`."""
    return _START.search(text) is not None


def read(text: str, name: str) -> Facts:
    """The hosts and their switches. Raises HolmesError."""
    document = parse(name, text)
    if not isinstance(document.value, list) or not all(isinstance(item, dict) for item in document.value):
        raise HolmesError(f"{name}:1: a list of topologies is expected, each with topology: NAME")
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
            notes.append(f"{name}: topology {label!r} has {len(again)} hosts of an earlier one; the earlier one counts")
        found |= {host.name: host for host in hosts if host.name not in found}
    if not found:
        raise HolmesError(f"{name}:1: no topology in it lists hosts; a tree or blocks are expected")
    return Facts(name, tuple(found.values()), census=SCHEDULER, notes=tuple(notes))


def _switches(document: Document, at: KeyPath, item: dict[str, Any], blocks: str) -> dict[str, trees.Switch]:
    if "tree" in item:
        return _described(document, (*at, "tree", "switches"), item["tree"], "switch", "switches")
    if "block" in item:
        found = _described(document, (*at, "block", "blocks"), item["block"], "block", "blocks")
        return found | {blocks: trees.Switch(f"{document.name}:{document.line(at)}", tuple(found))}
    if "flat" in item:
        return {}
    kinds = ", ".join(sorted(map(str, item.keys() - {"topology", "cluster_default"}))) or "nothing"
    raise HolmesError(document.fault(at, f"a tree, block or flat is expected here, not {kinds}"))


def _described(document: Document, at: KeyPath, section: Any, key: str, plural: str) -> dict[str, trees.Switch]:
    rows = section.get(plural) if isinstance(section, dict) else None
    if not isinstance(rows, list):
        raise HolmesError(document.fault(at, f"a list of {plural} is expected here"))
    found: dict[str, trees.Switch] = {}
    for index, row in enumerate(rows):
        place = (*at, index)
        own = row.get(key) if isinstance(row, dict) else None
        if own is None:
            raise HolmesError(document.fault(place, f"{key}: NAME is expected here"))
        if str(own) in found:
            raise HolmesError(document.fault(place, f"{key} {own!r} is described twice"))
        children, nodes = (_names(document, (*place, part), row.get(part)) for part in ("children", "nodes"))
        found[str(own)] = trees.Switch(f"{document.name}:{document.line(place)}", children, nodes)
    return found


def _names(document: Document, at: KeyPath, text: Any) -> tuple[str, ...]:
    if text is None:
        return ()
    try:
        return hostlist.expand(str(text))
    except TopologyError as error:
        raise HolmesError(document.fault(at, str(error))) from None
