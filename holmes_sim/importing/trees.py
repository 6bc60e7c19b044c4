"""A tree of switches -> hosts with their leaf and the switches above it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holmes_sim.importing.facts import Host
from sim.errors import HolmesError


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch: the switches and hosts below it, and where it was read."""

    where: str
    children: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


def hosts(switches: Mapping[str, Switch]) -> tuple[Host, ...]:
    """The hosts of all leaves, in order. Raises HolmesError if the switches are not a tree or a host has two leaves."""
    parents: dict[str, str] = {}
    for name, switch in switches.items():
        for child in switch.children:
            if child not in switches:
                raise HolmesError(f"{switch.where}: switch {name!r} has the child {child!r}, which is not described")
            if child in parents:
                raise HolmesError(f"{switch.where}: switch {child!r} is below both {parents[child]!r} and {name!r}")
            parents[child] = name
    found: dict[str, Host] = {}
    for name, switch in switches.items():
        above = _above(name, parents, switch.where)
        for node in () if switch.children else switch.nodes:
            if node in found:
                raise HolmesError(f"{switch.where}: host {node!r} is below both {found[node].leaf!r} and {name!r}")
            found[node] = Host(node, switch.where, name, above)
    return tuple(found.values())


def _above(name: str, parents: Mapping[str, str], where: str) -> tuple[str, ...]:
    """Switches above a switch, in order up to the root. Raises HolmesError for a cycle."""
    found: list[str] = []
    while name in parents:
        name = parents[name]
        if name in found:
            raise HolmesError(f"{where}: the switches {', '.join(found)} form a cycle")
        found.append(name)
    return tuple(found)
