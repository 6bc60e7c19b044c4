"""Kinds of change of a fleet that `what-if` tries, one file per kind.

A module offers `of(topology)`: the changes of its kind that the topology allows. A change is a list of edits of the topology
file, so that a user can make it by hand too. The folder is the registry.
"""

from __future__ import annotations

import math
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
    """A change: its name for users, and its edits as (path in the topology file, new value).

    The value None deletes the key (`sim.formats.edits`). `adds`: the changed fleet can do all that the fleet of today can, if
    what was added stays unused or is held back to the speed of today. Changes of equal `family` (not empty) are sizes of one
    addition, the smaller first.
    """

    name: str
    edits: tuple[tuple[str, object], ...]
    adds: bool = False
    family: str = ""

    def made(self, topology: Topology) -> Topology:
        """The topology after the change. Raises TopologyError if an edit is not possible."""
        for path, value in self.edits:
            topology = edited(topology, {path: value})
        return topology


LARGER = (1.25, 2.0)
"""Factors of the larger sizes that are tried: a quarter more, and twice as much."""


def larger_counts(count: int) -> list[int]:
    """The larger counts that are tried, in ascending order: one more, two more and the factors `LARGER`."""
    return sorted({count + 1, count + 2, *(math.ceil(factor * count) for factor in LARGER)})


def higher_price(where: str, price: UsdPerSecond | None, factor: float) -> tuple[tuple[str, object], ...]:
    """The edit that multiplies the price at a path of the topology file; no edit if there is no price."""
    return () if price is None else ((where, f"{factor * price * 3600:.6g} USD/h"),)


class Kind(Protocol):
    """Interface of the modules in this folder."""

    def of(self, topology: Topology) -> Iterator[Change]:
        """Changes of this kind that the topology allows, clusters in their order."""
        ...


REGISTRY: Registry[Kind] = Registry(__name__, "kind of change")


def menu(topology: Topology) -> tuple[Change, ...]:
    """All changes that are possible for a topology."""
    found: list[Change] = []
    for kind in REGISTRY.entries():
        found += [change for change in kind.of(topology) if _possible(change, topology)]
    return tuple(found)


def _possible(change: Change, topology: Topology) -> bool:
    """Whether all edits of a change can be applied."""
    try:
        change.made(topology)
    except TopologyError:
        return False
    return True
