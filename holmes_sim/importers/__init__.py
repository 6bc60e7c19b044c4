"""Importers: readers of files that describe a fleet, one file per kind of source.

A module offers `NAME` (the usual name of the source), `recognises(text)` (whether a text is of this kind, judged by its content
alone) and `read(text, name)`, which returns the facts in the text and raises HolmesError with `name:line` for malformed input.
The folder is the registry.
"""

from __future__ import annotations

from typing import Protocol

from holmes_sim.importing.facts import Facts
from sim.errors import HolmesError
from sim.registry import Registry


class Importer(Protocol):
    """Interface of the modules in this folder."""

    NAME: str

    def recognises(self, text: str) -> bool:
        """Whether a text is of this kind. True for malformed texts of the kind too, so that `read` can report what is wrong."""
        ...

    def read(self, text: str, name: str) -> Facts:
        """Facts in the text. Raises HolmesError with file and line."""
        ...


REGISTRY: Registry[Importer] = Registry(__name__, "importer", HolmesError)


def names() -> tuple[str, ...]:
    """Names of all importers, sorted."""
    return REGISTRY.names


def get(name: str) -> Importer:
    """The importer with this module name."""
    return REGISTRY.get(name)


def recognised(text: str, name: str) -> Importer:
    """The only importer that recognises a text. Raises HolmesError if no importer does, or several do."""
    known = [get(one) for one in names()]
    found = [importer for importer in known if importer.recognises(text)]
    if len(found) == 1:
        return found[0]
    if found:
        raise HolmesError(f"{name}: looks like {' and '.join(one.NAME for one in found)}; put each source into its own file")
    raise HolmesError(f"{name}: not a known kind of source; known kinds: {', '.join(one.NAME for one in known)}")
