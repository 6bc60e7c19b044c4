"""Sections of the page of a plan of islands, one file per section.

A module offers what one of `holmes_sim.reporting.sections` offers. The folder is the registry.
"""

from __future__ import annotations

from typing import Protocol

from holmes_sim.reporting.islands_contents import IslandsContents
from sim.registry import Registry


class IslandsSection(Protocol):
    """Interface of the modules in this folder."""

    NAME: str
    TITLE: str
    ORDER: int

    def html(self, contents: IslandsContents) -> str:
        """The content of the section, without its heading; empty if there is nothing to show."""
        ...


REGISTRY: Registry[IslandsSection] = Registry(__name__, "section")


def in_order() -> tuple[IslandsSection, ...]:
    """All sections, in the order of the page."""
    return tuple(sorted(REGISTRY.entries(), key=lambda section: section.ORDER))
