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


class Robustness(StrictModel):
    """What another aggregation than the mean withstands, and costs."""

    withstands: int = Field(description="number of islands that may be wrong")
    efficiency: float | None = Field(
        description="variance of the mean over that of the aggregation while all islands are right; null if unknown"
    )


class OuterState(StrictModel):
    """Outer state, error feedback and values of other islands that an aggregation keeps."""

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


class Back(StrictModel):
    """The return of an island."""

    away_s: float = Field(description="seconds from its leave")
    source: int = Field(description="index of the island that sends it a live checkpoint")
    checkpoint_bytes: float = Field(description="bytes of the checkpoint")
    waited_s: float = Field(description="seconds for which the others wait")


class Leave(StrictModel):
    """An island that leaves."""

    island: int = Field(description="index of the island")
    at_s: float = Field(description="seconds at which it leaves")
    waited_s: float = Field(description="seconds that the others lose once")
    tokens_per_s: Rates
    back: Back | None = Field(description="null if it does not come back")


class LeaveRate(StrictModel):
    """How often islands or nodes leave."""

    kind: Literal["island", "node"]
    every_s: float = Field(description="mean seconds between leaves of one")
    away_s: float = Field(description="mean seconds away")


class ElasticIsland(StrictModel):
    """How one island leaves, failures included."""

    leaves_every_s: float = Field(description="mean seconds from a return to the next leave")
    away_s: float = Field(description="mean seconds away")
    present: float = Field(description="share of the time in which it is present")
    checkpoint_s: float = Field(description="seconds of the live checkpoint that it gets when it is back")


class ElasticTokens(StrictModel):
    """Expected tokens per second."""

    never_leaving: float = Field(description="if no island ever left")
    useful: float = Field(description="with leaves and returns")
    lost_away: float = Field(description="lost because islands are away")
    lost_by_leaves: float = Field(description="steps, exchanges and timeouts lost when islands leave")
    lost_by_returns: float = Field(description="lost because others wait for an island that is back, and it for them")


class ElasticSimulated(StrictModel):
    """Simulated runs with drawn leaves."""

    days: float = Field(description="length of a run")
    seeds: int = Field(description="number of runs")
    tokens_per_s: float = Field(description="mean useful tokens per second")
    least: float = Field(description="that of the slowest run")
    most: float = Field(description="that of the fastest run")


class Elastic(StrictModel):
    """Islands that leave and come back while the others go on."""

    leaves: list[LeaveRate]
    islands: list[ElasticIsland]
    checkpoint_bytes: float = Field(description="bytes of a live checkpoint")
    goodput: float = Field(description="useful tokens per second over those of islands that never leave")
    tokens_per_s: ElasticTokens
    simulated: ElasticSimulated
    synchronous_goodput: float | None = Field(
        description="goodput of one synchronous run that stops until all are back; null where no checkpoint is given"
    )


class IslandsReport(StrictModel):
    """Simulated outer periods in steady state."""

    format: Literal["holmes-sim/islands-report/1"]
    sync: SyncFacts
    price: Literal["exact", "bounded", "changed"] = Field(description="what the strategy gives up")
    report: IslandsPredictionFacts
    token_worth: TokenWorthFacts | None = Field(description="null where nothing is published about the strategy")
    robustness: Robustness | None = Field(description="null where the islands' mean is taken")
    outer_state: OuterState
    simulation: OuterSimulation
    trouble: Trouble | None = Field(None, description="with faults")
    leave: Leave | None = Field(None, description="with --leave ISLAND@TIME")
    elastic: Elastic | None = Field(None, description="with --leave KIND:EVERY:AWAY")


MODEL = IslandsReport
