"""The chosen placement of experts, layer by layer."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from holmes_sim.schemas.expert_placements import PlacementNumbers
from sim.formats.fields import StrictModel

NAME = "expert-placement"
FORMAT = "holmes-sim/expert-placement/1"
WRITTEN_BY = ("place-experts PLAN --counts FILE -o FILE",)


class CopyShares(StrictModel):
    """A copy of an expert that has several."""

    expert: int = Field(description="number of the expert")
    rank: int = Field(description="rank of the ep group that holds the copy")
    shares: tuple[float, ...] = Field(description="for each node, the fraction of its tokens that the copy takes")


class BlockShares(StrictModel):
    """Copies in a block of ep groups that run at the same time."""

    groups: tuple[tuple[int, ...], ...] = Field(description="ranks of each ep group")
    nodes: tuple[tuple[int, ...], ...] = Field(description="ranks of the ep group on each node")
    copies: tuple[CopyShares, ...]


class PlacedExperts(StrictModel):
    """A layer."""

    layer: int = Field(description="number of the layer, from 0")
    ranks: tuple[tuple[int, ...], ...] = Field(description="experts of each rank of every ep group")
    shares: tuple[BlockShares, ...] = Field((), description="with replicas: how their tokens are divided")


class PlacementRouting(StrictModel):
    """`routing` of the plan that follows."""

    imbalance: float = Field(description="tokens of the busiest rank over the mean")
    exchange: float | None = Field(description="seconds of an exchange over those of equal shares; null: as imbalance")


class ExpertPlacementFile(PlacementNumbers):
    """The placement of all layers."""

    format: Literal["holmes-sim/expert-placement/1"]
    plan: str = Field(description="digest of the plan")
    topology: str
    model: str
    origin: str = Field(description="where the counts come from")
    dispatcher: str
    routing: PlacementRouting
    layers: tuple[PlacedExperts, ...]


MODEL = ExpertPlacementFile
