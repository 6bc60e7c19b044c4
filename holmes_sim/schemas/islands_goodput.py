"""Goodput of islands, of which one that fails does not stop the others."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.formats.fields import StrictModel

NAME = "islands-goodput"
FORMAT = "holmes-sim/islands-goodput/1"
WRITTEN_BY = ("goodput ISLANDS --checkpoint TIME --restart TIME --json",)


class IslandGoodput(StrictModel):
    """One island."""

    goodput: float = Field(description="fraction of its time that is spent on inner steps that no failure undoes")
    mean_time_between_failures_s: float = Field(description="mean seconds between its failures")


class IslandsGoodput(StrictModel):
    """All islands."""

    format: Literal["holmes-sim/islands-goodput/1"]
    goodput: float = Field(description="mean over the islands, weighted by their batches")
    islands: list[IslandGoodput]
    synchronous_goodput: float = Field(description="goodput of one synchronous run of the same devices, with checkpoints")
    tokens_per_s: float = Field(description="useful tokens of all islands per second")


MODEL = IslandsGoodput
