"""Tokens per second of exact training and sync strategies by the bandwidth of the links between islands."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from holmes_sim.schemas.islands_report import TokenWorthFacts
from sim.formats.fields import StrictModel

NAME = "trunk"
FORMAT = "holmes-sim/trunk/1"
WRITTEN_BY = ("trunk TOPO --json",)


class ExactPlan(StrictModel):
    """The best plan without islands at one bandwidth."""

    tokens_per_s: float = Field(description="tokens per second")
    clusters: list[str] = Field(description="clusters that it uses")


class SyncCurve(StrictModel):
    """A sync strategy at all bandwidths."""

    sync: str
    price: Literal["exact", "bounded", "changed"]
    tokens_per_s: list[float | None] = Field(description="at each bandwidth; null where its state has no room")
    token_worth: TokenWorthFacts | None = Field(description="null where nothing is published about the strategy")


class CrossingFacts(StrictModel):
    """Where a strategy gives as many tokens per second as exact training."""

    sync: str
    bandwidth_bytes_per_s: float = Field(description="bandwidth in bytes per second")
    faster_above: bool = Field(description="whether the strategy is the faster one above it")


class Trunk(StrictModel):
    """A sweep of the bandwidth of the links between islands."""

    format: Literal["holmes-sim/trunk/1"]
    islands: list[list[str]] = Field(description="clusters of each island")
    bandwidths_bytes_per_s: list[float] = Field(description="bandwidths in bytes per second, ascending")
    exact: list[ExactPlan] = Field(description="at each bandwidth")
    rows: list[SyncCurve]
    crossings: list[CrossingFacts]


MODEL = Trunk
