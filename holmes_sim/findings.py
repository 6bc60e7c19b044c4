"""What a check of a topology reads and returns: the topology with its file, and findings with the key they are about."""

from __future__ import annotations

from dataclasses import dataclass

from sim.formats.documents import Document, KeyPath
from sim.hardware.topology import Topology


@dataclass(frozen=True, slots=True)
class Subject:
    """A topology and the document of its file, which has the line of every key."""

    topology: Topology
    document: Document


@dataclass(frozen=True, slots=True)
class Finding:
    """Something odd in a valid topology: path of the key, what is odd, what it means for plans, and what would be right.

    `for_launch`: plans are not concerned, only exported launches."""

    path: KeyPath
    odd: str
    means: str
    better: str
    for_launch: bool = False
