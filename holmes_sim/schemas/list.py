"""Entries of the catalogue, or choices such as strategies and launch targets."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from sim.formats.fields import StrictModel

NAME = "list"
FORMAT = "holmes-sim/list/1"
WRITTEN_BY = ("list KIND --json",)


class ListedEntry(StrictModel):
    """An entry."""

    name: str
    facts: dict[str, Any] | None = Field(None, description="facts of an entry of the catalogue, in SI units")
    what: str | None = Field(None, description="what a choice is, in words")


class ListDocument(StrictModel):
    """The entries of a kind."""

    format: Literal["holmes-sim/list/1"]
    kind: str
    names: tuple[str, ...] = Field(description="names of all entries")
    rows: tuple[ListedEntry, ...]


MODEL = ListDocument
