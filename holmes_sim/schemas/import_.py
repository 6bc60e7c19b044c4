"""A topology made from files of other tools, with what was read, assumed and is missing."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.formats.fields import StrictModel
from sim.formats.topology_facts import TopologyFacts

NAME = "import"
FORMAT = "holmes-sim/import/1"
WRITTEN_BY = ("import SOURCE --json",)


class ImportDocument(StrictModel):
    """An imported topology."""

    format: Literal["holmes-sim/import/1"]
    topology: TopologyFacts
    read: tuple[str, ...] = Field(description="files that were read, and as what")
    assumed: tuple[str, ...] = Field(description="what no file says and was assumed, in words")
    missing: tuple[str, ...] = Field(description="what no file says and you must add, in words")


MODEL = ImportDocument
