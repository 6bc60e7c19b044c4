"""Importer of NVIDIA topograph: a model (switches, blocks, nodes, capacity blocks) or the reply of its graph engine
(instances).

Format: topograph docs/modeling.md and docs/engines/graph.md, tests/models; YAML or JSON. A model lists hosts in
`switches.X.nodes`, in `blocks` together with their switch, or in `nodes` alone. Older models are lists with `name`, whose
switches name capacity blocks. NVLink domains (capacity blocks, accelerator labels) are not network fabrics and are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from holmes_sim.importing import hardware, trees
from holmes_sim.importing.facts import SCHEDULER, Devices, Facts, Host, Parts
from sim.errors import HolmesError, TopologyError
from sim.formats import hostlist
from sim.formats.documents import Document, KeyPath, parse

NAME = "topograph model or graph"
_YAML = re.compile(r"^(?:switches|blocks|capacity_blocks)\s*:", re.MULTILINE)
_JSON = re.compile(r'"(?:switches|blocks|capacity_blocks|network_layers)"\s*:')


def recognises(text: str) -> bool:
    """Whether the text has switches, blocks or capacity blocks at the top level, or instances with network layers."""
    if text.lstrip().startswith("{"):
        return _JSON.search(text) is not None and '"apiVersion"' not in text
    return _YAML.search(text) is not None


def read(text: str, name: str) -> Facts:
    """The hosts, the switches above them, and their devices if the catalogue has the type. Raises HolmesError."""
    document = parse(name, text)
    if not isinstance(document.value, dict):
        raise HolmesError(f"{name}:1: expected switches, blocks or instances")
    if "instances" in document.value:
        hosts, types = _instances(document)
    else:
        hosts, types = _model(document), _types(document)
    if not hosts:
        raise HolmesError(f"{name}:1: no hosts; expected nodes of switches or blocks, or instances")
    parts = [
        Parts(hosts=(node,), devices=Devices(where, hardware.device(label), label)) for node, (label, where) in types.items()
    ]
    return Facts(name, tuple(hosts), coverage=SCHEDULER, parts=tuple(parts))


def _instances(document: Document) -> tuple[list[Host], dict[str, tuple[str, str]]]:
    """(hosts, device type and place in the file by host) of a reply of the graph engine."""
    hosts: dict[str, Host] = {}
    types: dict[str, tuple[str, str]] = {}
    for key, row in _rows(document, "instances"):
        where = f"{document.name}:{document.line(('instances', key))}"
        own, layers = row.get("id"), row.get("network_layers") or []
        if not isinstance(own, str) or not isinstance(layers, list) or not all(isinstance(layer, str) for layer in layers):
            raise HolmesError(f"{where}: an instance needs an id and network_layers, a list of switches from the leaf up")
        if own in hosts:
            raise HolmesError(f"{where}: instance {own!r} is described twice; first at {hosts[own].where}")
        hosts[own] = Host(own, where, layers[0] if layers else "", tuple(layers[1:]))
        if isinstance(row.get("type"), str):
            types[own] = row["type"], where
    return list(hosts.values()), types


def _model(document: Document) -> list[Host]:
    """Hosts of a model: those below switches, and nodes without a switch as hosts without a leaf."""
    switches: dict[str, trees.Switch] = {}
    held = {own: (_names(document, ("capacity_blocks", key), row.get("nodes")), f"{document.name}:{_line(document, key)}")
            for key, own, row in _named(document, "capacity_blocks")}  # fmt: skip
    for key, own, row in _named(document, "switches"):
        at: KeyPath = ("switches", key)
        nodes = list(_names(document, at, row.get("nodes")))
        for block in row.get("capacity_blocks") or []:
            nodes += held.get(str(block), ((), ""))[0]
        where = f"{document.name}:{document.line(at)}"
        switches[own] = trees.Switch(where, tuple(map(str, row.get("switches") or [])), tuple(nodes))
    loose: dict[str, Host] = {}
    for key, row in _rows(document, "blocks"):
        at = ("blocks", key)
        where, nodes_of = f"{document.name}:{document.line(at)}", _names(document, at, row.get("nodes"))
        switch = row.get("switch")
        if switch is None:
            loose |= {node: Host(node, where) for node in nodes_of}
            continue
        before = switches.get(str(switch), trees.Switch(where))
        switches[str(switch)] = trees.Switch(before.where, before.children, before.nodes + nodes_of)
    for switch in list(switches.values()):
        for child in switch.children:  # leaves that only appear as children
            switches.setdefault(child, trees.Switch(switch.where))
    found = {host.name: host for host in trees.hosts(switches)}
    for key, own, _ in _named(document, "nodes"):
        loose.setdefault(own, Host(own, f"{document.name}:{document.line(('nodes', key))}"))
    for nodes_held, where in held.values():
        for node in nodes_held:
            loose.setdefault(node, Host(node, where))
    return [*found.values(), *(host for node, host in loose.items() if node not in found)]


def _line(document: Document, key: str | int) -> int:
    """Line of a capacity block."""
    return document.line(("capacity_blocks", key))


def _types(document: Document) -> dict[str, tuple[str, str]]:
    """Host -> (device type, place in the file), for nodes and capacity blocks that have a type."""
    found: dict[str, tuple[str, str]] = {}
    for key, _, row in _named(document, "capacity_blocks"):
        if isinstance(row.get("type"), str):
            at: KeyPath = ("capacity_blocks", key)
            where = f"{document.name}:{document.line((*at, 'type'))}"
            found |= dict.fromkeys(_names(document, at, row.get("nodes")), (row["type"], where))
    for key, own, row in _named(document, "nodes"):
        if isinstance(row.get("type"), str):
            found[own] = row["type"], f"{document.name}:{document.line(('nodes', key, 'type'))}"
    return found


def _rows(document: Document, section: str) -> Iterator[tuple[str | int, dict[str, Any]]]:
    """(key, row) of a section that may be a mapping, a list, or absent."""
    assert isinstance(document.value, dict)
    given = document.value.get(section) or {}
    if not isinstance(given, dict | list):
        raise HolmesError(document.fault((section,), "expected a mapping or a list"))
    for key, row in given.items() if isinstance(given, dict) else enumerate(given):
        if row is not None and not isinstance(row, dict):
            raise HolmesError(document.fault((section, key), f"expected a mapping, not {row!r}"))
        yield key, row or {}


def _named(document: Document, section: str) -> Iterator[tuple[str | int, str, dict[str, Any]]]:
    """(key, name, row) of a section: the name is the key in a mapping, and `name` in a list."""
    for key, row in _rows(document, section):
        own = row.get("name") if isinstance(key, int) else key
        if own is None:
            raise HolmesError(document.fault((section, key), "expected name: NAME"))
        yield key, str(own), row


def _names(document: Document, at: KeyPath, given: Any) -> tuple[str, ...]:
    """Hosts of a list whose items are host lists or objects with node_id. Raises HolmesError."""
    if given is None:
        return ()
    if not isinstance(given, list):
        raise HolmesError(document.fault((*at, "nodes"), "expected a list of hosts"))
    found: list[str] = []
    for item in given:
        text = item.get("node_id") if isinstance(item, dict) else item
        try:
            found += hostlist.expand(str(text))
        except TopologyError as error:
            raise HolmesError(document.fault((*at, "nodes"), str(error))) from None
    return tuple(found)
