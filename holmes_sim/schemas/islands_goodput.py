"""Goodput of islands, of which one that fails does not stop the others."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from holmes_sim.schemas.islands_report import Elastic, TokenWorthFacts
from sim.formats.fields import StrictModel

NAME = "islands-goodput"
FORMAT = "holmes-sim/islands-goodput/1"
WRITTEN_BY = ("goodput ISLANDS --checkpoint TIME --restart TIME --json",)


class IslandGoodput(StrictModel):
    """One island."""

    goodput: float = Field(description="fraction of its time that is spent on inner steps that no failure undoes")
    mean_time_between_failures_s: float = Field(description="mean seconds between its failures")


class Spent(StrictModel):
    """What a number of tokens takes."""

    tokens: float = Field(description="number of tokens that islands train")
    days: tuple[float, float, float] = Field(description="expected, least and most days")
    device_hours: float = Field(description="hours of all devices of the islands together")
    usd: float | None = Field(description="rent in USD; null if a price is unknown")
    mwh: float | None = Field(description="energy of the devices in MWh; null if a power is unknown")


class IslandsWholeRun(StrictModel):
    """A whole training run of islands with failures."""

    tokens: float = Field(description="number of tokens that was asked for")
    by_tokens: Spent = Field(description="islands train these tokens; days with the range of inner steps")
    by_effective_tokens: Spent | None = Field(
        description="islands train until their loss is that of synchronous training on these tokens; days with the range of "
        "the worth of a token; null if it is unknown"
    )
    worth: TokenWorthFacts | None = Field(description="null where nothing is published about the strategy")
    goodput: float = Field(description="fraction of the time spent on inner steps that no failure undoes")
    restart_s: float = Field(description="seconds of a restart of an island")


class IslandsGoodput(StrictModel):
    """All islands."""

    format: Literal["holmes-sim/islands-goodput/1"]
    goodput: float = Field(description="mean over the islands, weighted by their batches")
    islands: list[IslandGoodput]
    synchronous_goodput: float = Field(description="goodput of one synchronous run of the same devices, with checkpoints")
    tokens_per_s: float = Field(description="useful tokens of all islands per second")
    elastic: Elastic | None = Field(None, description="with --leave")
    whole_run: IslandsWholeRun | None = Field(None, description="with --tokens")


MODEL = IslandsGoodput
