"""Entries of the catalogue, or choices such as strategies and launch targets."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from sim.formats.fields import StrictModel

NAME = "list"
FORMAT = "holmes-sim/list/1"
WRITTEN_BY = ("list KIND --json",)


class TargetFacts(StrictModel):
    """A launch target: what it starts, who has read its exports, devices, and what it can express."""

    kind: str = Field(description="framework, launcher of any program, data for other programs, or islands")
    read_by: str = Field(description="programs and versions that have read its exports")
    vendors: str = Field(description="of how many vendors devices may be: one; several that a communicator joins (joined); any")
    excluded_vendors: tuple[str, ...] = Field(description="vendors on whose devices it does not run")
    takes: dict[str, tuple[str | int, ...]] = Field(
        description="property -> values that it can express, each in an otherwise plain layout; empty for targets of islands"
    )


class ListedEntry(StrictModel):
    """An entry."""

    name: str
    facts: dict[str, Any] | None = Field(None, description="facts of an entry of the catalogue, in SI units")
    what: str | None = Field(None, description="what a choice is, in words")
    target: TargetFacts | None = Field(None, description="facts of a launch target")


class ListDocument(StrictModel):
    """The entries of a kind."""

    format: Literal["holmes-sim/list/1"]
    kind: str
    names: tuple[str, ...] = Field(description="names of all entries")
    rows: tuple[ListedEntry, ...]


MODEL = ListDocument
