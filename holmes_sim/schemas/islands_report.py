"""Simulated outer periods of a plan of islands, and what a token of such training is worth."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.formats.fields import StrictModel
from sim.formats.islandsfile import IslandsPredictionFacts, SyncFacts

NAME = "islands-report"
FORMAT = "holmes-sim/islands-report/1"
WRITTEN_BY = ("simulate ISLANDS --json",)


class TokenWorthFacts(StrictModel):
    """Tokens of synchronous training that reach the loss of one token: the expected value and its range."""

    expected: float = Field(description="the expected worth, at most 1")
    low: float = Field(description="the worth if the published losses were 0.4 % too low")
    high: float = Field(description="the worth if the published losses were 0.4 % too high")
    extrapolated: str = Field(description="what is outside the published range; empty if nothing is")


class OuterState(StrictModel):
    """Outer state and error feedback."""

    bytes: list[float] = Field(description="of the rank with most of them, of each island")
    on_host: bool = Field(description="whether the host keeps them, not the device")


class OuterSimulation(StrictModel):
    """The work of the simulation."""

    seconds: float = Field(description="wall time of the simulation in seconds")
    events: int = Field(description="number of simulated events")


class Trouble(StrictModel):
    """Outer periods with faults."""

    faults: str
    fault_free_s: float = Field(description="seconds of an outer period without faults")
    mean_s: float = Field(description="mean seconds of an outer period over the seeds")
    p95_s: float = Field(description="seconds that 95 % of the seeds do not exceed")
    slowest_s: float = Field(description="seconds of the slowest seed")
    seeds: int = Field(description="number of seeds")


class Rates(StrictModel):
    """Tokens per second."""

    before: float = Field(description="with all islands")
    after: float = Field(description="without the island")


class Leave(StrictModel):
    """An island that leaves."""

    island: int = Field(description="index of the island")
    at_s: float = Field(description="seconds at which it leaves")
    waited_s: float = Field(description="seconds that the others lose once")
    tokens_per_s: Rates


class IslandsReport(StrictModel):
    """Simulated outer periods in steady state."""

    format: Literal["holmes-sim/islands-report/1"]
    sync: SyncFacts
    price: Literal["exact", "bounded", "changed"] = Field(description="what the strategy gives up")
    report: IslandsPredictionFacts
    token_worth: TokenWorthFacts | None = Field(description="null where nothing is published about the strategy")
    outer_state: OuterState
    simulation: OuterSimulation
    trouble: Trouble | None = Field(None, description="with faults")
    leave: Leave | None = Field(None, description="with --leave")


MODEL = IslandsReport
