"""Timelines of a plan beside its prediction and a new simulation."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from holmes_sim.document_parts import ComparedMemory, Comparison
from sim.formats.fields import StrictModel

NAME = "measured-steps"
FORMAT = "holmes-sim/measured-steps/1"
WRITTEN_BY = ("compare PLAN TIMELINE --json",)


class ComparedStep(Comparison):
    """The step."""

    steps_s: tuple[float, ...] = Field(description="seconds of each timed step")
    spread: float | None = Field(description="(longest - shortest) / median of the timed steps, a fraction; null without them")


class ComparedStage(StrictModel):
    """One pipeline rank."""

    stage: int = Field(description="pipeline rank, a number from 0")
    ranks: int = Field(description="number of its ranks")
    seconds: dict[str, Comparison] = Field(description="compute, exposed, bubble and other")
    groups: dict[str, Comparison] = Field(description="kind of group -> time for which its communication lasts")


class ComparedTimeline(StrictModel):
    """A timeline beside the plan."""

    name: str = Field(description="file of the timeline")
    origin: Literal["simulated", "measured"]
    compute: str = Field(description="real, paced or, if simulated, empty")
    scale: float = Field(description="factor by which the run was slowed down")
    step: ComparedStep
    seconds: dict[str, Comparison] = Field(description="compute, exposed, bubble and other, over all ranks")
    stages: tuple[ComparedStage, ...]
    memory: tuple[ComparedMemory, ...] = Field((), description="memory of devices; empty where it was not measured")


class MeasuredSteps(StrictModel):
    """The timelines, in the order of the arguments."""

    format: Literal["holmes-sim/measured-steps/1"]
    rows: tuple[ComparedTimeline, ...]


MODEL = MeasuredSteps
