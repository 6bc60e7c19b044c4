"""A topology that describes your fleet, with what is assumed and missing."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.formats.fields import StrictModel
from sim.formats.topology_facts import TopologyFacts

NAME = "init"
FORMAT = "holmes-sim/init/1"
WRITTEN_BY = ("init --json",)


class InitDocument(StrictModel):
    """A described fleet."""

    format: Literal["holmes-sim/init/1"]
    topology: TopologyFacts
    assumed: tuple[str, ...] = Field(description="what was assumed, in words")
    missing: tuple[str, ...] = Field(description="what you must add, in words")


MODEL = InitDocument
