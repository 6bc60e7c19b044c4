"""A timeline by pipeline rank: seconds of compute, exposed communication and bubble, and of each kind of group."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.formats.fields import StrictModel

NAME = "breakdown"
FORMAT = "holmes-sim/breakdown/1"
WRITTEN_BY = ("show TIMELINE --json",)


class RankShare(StrictModel):
    """Seconds of a rank of this pipeline rank."""

    mean: float = Field(description="mean seconds over ranks")
    least: float = Field(description="least seconds of a rank")
    most: float = Field(description="most seconds of a rank")


class BreakdownStage(StrictModel):
    """One pipeline rank."""

    stage: int = Field(description="pipeline rank, a number from 0")
    ranks: int = Field(description="number of its ranks")
    seconds: dict[str, RankShare] = Field(description="compute, exposed, bubble and other, which add up to the step")
    groups: dict[str, RankShare] = Field(description="kind of group -> time for which its communication lasts")


class Breakdown(StrictModel):
    """A simulated or measured timeline."""

    format: Literal["holmes-sim/breakdown/1"]
    name: str
    origin: Literal["simulated", "measured"]
    plan_digest: str = Field(description="digest of the plan that ran")
    step_s: float = Field(description="seconds of the step; of a measured one, the median")
    steps_s: tuple[float, ...] = Field(description="seconds of each measured step; empty if simulated")
    scale: float = Field(description="factor by which the run was slowed down")
    compute: str = Field(description="real, paced or, if simulated, empty")
    tokens: int = Field(description="number of tokens of a step")
    flops: float = Field(description="number of floating-point operations of a step")
    stages: tuple[BreakdownStage, ...]


MODEL = Breakdown
