"""The sections of the page: one file, one section.

A module offers `NAME` (its anchor), `TITLE`, `ORDER` (its place on the page) and `html(study)`, which is empty where there is
nothing to say. The folder is the registry."""

from __future__ import annotations

from typing import Protocol

from holmes_sim.reporting.study import Study
from sim.registry import Registry


class Section(Protocol):
    """What every module of this folder offers."""

    NAME: str
    TITLE: str
    ORDER: int

    def html(self, study: Study) -> str:
        """The section below its heading."""
        ...


REGISTRY: Registry[Section] = Registry(__name__, "section")


def in_order() -> tuple[Section, ...]:
    """All sections, as they stand on the page."""
    return tuple(sorted(REGISTRY.entries(), key=lambda section: section.ORDER))
