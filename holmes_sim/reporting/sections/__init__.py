"""The sections of the page: one file, one section.

A module offers `NAME` (its anchor), `TITLE`, `ORDER` (its place on the page) and `html(study)`, which is empty where there is
nothing to say. The folder is the registry."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Protocol

from holmes_sim.reporting.study import Study


class Section(Protocol):
    """What every module of this folder offers."""

    NAME: str
    TITLE: str
    ORDER: int

    def html(self, study: Study) -> str:
        """The section below its heading."""
        ...


def in_order() -> tuple[Section, ...]:
    """All sections, as they stand on the page."""
    found: list[Section] = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    return tuple(sorted(found, key=lambda section: section.ORDER))
