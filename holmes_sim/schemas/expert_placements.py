"""Placements of the experts of a plan beside each other."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from holmes_sim.document_parts import Notes
from sim.formats.fields import StrictModel

NAME = "expert-placements"
FORMAT = "holmes-sim/expert-placements/1"
WRITTEN_BY = ("place-experts PLAN --counts FILE --json",)


class PlacementNumbers(StrictModel):
    """A placement. Seconds and bytes are means over the layers."""

    placement: str = Field(description="how the experts were placed")
    ep: int = Field(description="expert-parallel degree")
    replicas: int = Field(description="number of slots for replicas of experts")
    busiest_rank_over_mean: float = Field(description="tokens of the busiest rank over the mean")
    bytes_between_clusters: float = Field(description="bytes of an exchange between clusters, the most of any")
    bytes_out_of_node: float = Field(description="bytes of an exchange in or out of a node, the most of any")
    exchange_s: float = Field(description="seconds of the exchanges of a layer and microbatch")
    experts_s: float = Field(description="seconds of the experts of a layer and microbatch on the slowest rank")
    gap: float | None = Field(description="1 - bound / seconds, a fraction; null without a bound")
    step_s: float = Field(description="simulated seconds of a step")


class ChosenPlacement(StrictModel):
    """The placement that -o writes."""

    placement: str
    ep: int = Field(description="expert-parallel degree")
    replicas: int = Field(description="number of slots for replicas of experts")


class ExpertPlacements(StrictModel):
    """All placements that were compared."""

    format: Literal["holmes-sim/expert-placements/1"]
    origin: str = Field(description="where the counts come from")
    rows: tuple[PlacementNumbers, ...]
    chosen: ChosenPlacement
    replica_bytes_per_rank: float = Field(description="bytes of weights of the replicas on each rank")
    notes: Notes


MODEL = ExpertPlacements
