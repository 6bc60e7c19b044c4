"""What could be bought or changed: one file, one kind of change.

A module offers `of(topology)`: the changes of that kind that the topology allows. A change is edits of the topology's file, so
that it can be made by hand as well. The folder is the menu."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from sim.errors import TopologyError
from sim.formats.edits import edited
from sim.hardware.topology import Topology
from sim.registry import Registry
from sim.units import UsdPerSecond


@dataclass(frozen=True, slots=True)
class Change:
    """A change: its name, as people say it, and its edits, each a place of the topology's file and the value there.

    None as a value deletes the key (`sim.formats.edits`)."""

    name: str
    edits: tuple[tuple[str, object], ...]

    def made(self, topology: Topology) -> Topology:
        """The topology after the change. Raises TopologyError where it cannot be made."""
        for path, value in self.edits:
            topology = edited(topology, {path: value})
        return topology


def doubled(where: str, price: UsdPerSecond | None) -> tuple[tuple[str, object], ...]:
    """The edit that doubles a price, where there is one."""
    return () if price is None else ((where, f"{2 * price * 3600:.6g} USD/h"),)


class Kind(Protocol):
    """What every module of this folder offers."""

    def of(self, topology: Topology) -> Iterator[Change]:
        """Changes of this kind that the topology allows, the clusters in their order."""
        ...


REGISTRY: Registry[Kind] = Registry(__name__, "kind of change")


def menu(topology: Topology) -> tuple[Change, ...]:
    """Every change that can be made to a topology."""
    found: list[Change] = []
    for kind in REGISTRY.entries():
        found += [change for change in kind.of(topology) if _possible(change, topology)]
    return tuple(found)


def _possible(change: Change, topology: Topology) -> bool:
    try:
        change.made(topology)
    except TopologyError:
        return False
    return True
