"""Sources of facts about a fleet: one file, one importer.

A module offers `NAME` (what people call the source), `recognises(text)` (whether a text is one, told by its content alone) and
`read(text, name)`, which returns the facts that it tells and raises HolmesError with `name:line` where it is malformed. The
folder is the registry."""

from __future__ import annotations

from typing import Protocol

from holmes_sim.importing.facts import Facts
from sim.errors import HolmesError
from sim.registry import Registry


class Importer(Protocol):
    """What every module of this folder offers."""

    NAME: str

    def recognises(self, text: str) -> bool:
        """Whether a text is of this kind; malformed text may be, so that it can be told what is wrong with it."""
        ...

    def read(self, text: str, name: str) -> Facts:
        """What the text tells. Raises HolmesError, naming file and line."""
        ...


REGISTRY: Registry[Importer] = Registry(__name__, "importer", HolmesError)


def names() -> tuple[str, ...]:
    """Names of all importers, sorted."""
    return REGISTRY.names


def get(name: str) -> Importer:
    """The importer of a module name."""
    return REGISTRY.get(name)


def recognised(text: str, name: str) -> Importer:
    """The one importer that recognises a text. Raises HolmesError where none does, or several."""
    known = [get(one) for one in names()]
    found = [importer for importer in known if importer.recognises(text)]
    if len(found) == 1:
        return found[0]
    if found:
        raise HolmesError(f"{name}: looks like {' and '.join(one.NAME for one in found)} at once; give each a file of its own")
    raise HolmesError(f"{name}: is none of the sources that can be read: {', '.join(one.NAME for one in known)}")
