"""Sections of the page, one file per section.

A module offers `NAME` (its anchor), `TITLE`, `ORDER` (its position on the page) and `html(contents)`, which is empty if there
is nothing to show. The folder is the registry.
"""

from __future__ import annotations

from typing import Protocol

from holmes_sim.reporting.contents import Contents
from sim.registry import Registry


class Section(Protocol):
    """Interface of the modules in this folder."""

    NAME: str
    TITLE: str
    ORDER: int

    def html(self, contents: Contents) -> str:
        """The content of the section, without its heading."""
        ...


REGISTRY: Registry[Section] = Registry(__name__, "section")


def in_order() -> tuple[Section, ...]:
    """All sections, in the order of the page."""
    return tuple(sorted(REGISTRY.entries(), key=lambda section: section.ORDER))
