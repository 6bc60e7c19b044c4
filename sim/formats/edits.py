"""Edits of a topology: set values at paths of its file, such as `workload.global_batch_size` or `links[0].bandwidth`.

If a path leads into an entry of the catalogue that the file names (`clusters.ib.node.devices.type.memory`,
`workload.model.layers`), the facts of the entry replace its name first. The result is checked like a file.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from typing import Any

from sim.errors import TopologyError
from sim.formats import catalog
from sim.formats.documents import KeyPath, key_text, parse
from sim.formats.suggestions import suggestion
from sim.formats.topology import from_document, written
from sim.hardware.topology import Topology

NAMED = {"type": "devices", "intra_node": "links", "model": "models"}
"""Key whose value may be a name of the catalogue -> folder of the catalogue."""
WITHOUT_DEFAULT = (("workload", "adapter"), ("workload", "routing"))
"""Paths of mappings that an edit of one of their keys makes where the topology has none."""
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


def edited(topology: Topology, edits: Mapping[str, object]) -> Topology:
    """The topology after edits (path -> value), applied in order; the value None deletes the key or the element.

    A key may be new if the schema knows it (`clusters.ib.fabric`); an index must exist. Only the final result is checked.
    Raises TopologyError."""
    facts = copy.deepcopy(written(topology))
    for path, value in edits.items():
        _change(facts, path, copy.deepcopy(value))
    try:
        return from_document(parse(topology.name, json.dumps(facts)))
    except TopologyError as error:  # the edited document has one line, which says nothing
        raise TopologyError(str(error).replace(f"{topology.name}:1: ", f"{topology.name} with edits: ")) from None


def _change(facts: dict[str, Any], path: str, value: object) -> None:
    steps = _steps(facts, path)
    parent: Any = facts
    for index, step in enumerate(steps[:-1]):
        inside = _at(parent, step, path, steps[: index + 1])
        if isinstance(inside, str):
            parent[step] = inside = _facts_of(inside, steps[: index + 1], path)
        parent = inside
    _put(parent, steps, value, path)


def _steps(facts: Any, path: str) -> KeyPath:
    """Keys and indices of a path; a key of the document that contains dots (a cluster name) stays one key."""
    pieces = [piece[0] or int(piece[1]) for piece in _STEP.findall(path)]
    if not pieces or key_text(pieces) != path:
        raise TopologyError(f"{path!r} is not a path in a topology; write for example clusters.ib.node.nics[0].bandwidth")
    steps: list[str | int] = []
    while pieces:
        whole = next((n for n in range(len(pieces), 1, -1) if isinstance(facts, dict) and _joined(pieces[:n]) in facts), 1)
        step = _joined(pieces[:whole]) if whole > 1 else pieces[0]
        steps.append(step)
        pieces = pieces[whole:]
        facts = facts.get(step) if isinstance(facts, dict) else facts[step] if _has(facts, step) else None
    return tuple(steps)


def _joined(pieces: list[str | int]) -> str:
    return ".".join(map(str, pieces))


def _has(parent: object, step: object) -> bool:
    return isinstance(parent, list) and isinstance(step, int) and step < len(parent)


def _at(parent: Any, step: str | int, path: str, so_far: KeyPath) -> Any:
    if isinstance(parent, dict) and isinstance(step, str):
        if step not in parent and len(so_far) < 3 and so_far[0] != "require" and so_far not in WITHOUT_DEFAULT:
            raise TopologyError(f"{path}: there is no {key_text(so_far)}{suggestion(step, map(str, parent))}")
        return parent.setdefault(step, {})
    if _has(parent, step):
        return parent[step]
    last = f"; the last one is {key_text((*so_far[:-1], len(parent) - 1))}" if isinstance(parent, list) and parent else ""
    raise TopologyError(f"{path}: there is no {key_text(so_far)}{last}")


def _facts_of(name: str, so_far: KeyPath, path: str) -> Any:
    """The facts of a catalogue entry, as in its file."""
    folder = NAMED.get(str(so_far[-1]), "")
    if folder not in catalog.KINDS or name not in catalog.names(folder):
        raise TopologyError(f"{path}: {key_text(so_far)} is {name!r}, which has no keys")
    return catalog.document(folder, name).value


def _put(parent: Any, steps: KeyPath, value: object, path: str) -> None:
    last = steps[-1]
    inside = _has(parent, last) if isinstance(last, int) else isinstance(parent, dict)
    if not inside or (value is None and not isinstance(last, int) and last not in parent):
        raise TopologyError(f"{path}: there is no {key_text(steps)}")
    if value is None:
        del parent[last]
    else:
        parent[last] = value
