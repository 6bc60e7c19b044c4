"""A measured step of a plan with attention and experts on two sets of ranks that ran with torch, beside its simulation."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from holmes_sim.document_parts import Notes
from holmes_sim.schemas.run import LabCores
from sim.formats.fields import StrictModel

NAME = "disaggregated-run"
FORMAT = "holmes-sim/disaggregated-run/1"
WRITTEN_BY = ("run DISAGGREGATED --json", "lab DISAGGREGATED --json", "compare DISAGGREGATED TIMELINE --json")


class PartSeconds(StrictModel):
    """Seconds of a step or of one of its parts, the mean over the ranks of a set."""

    simulated: float = Field(description="simulated seconds, multiplied by the scale")
    measured: float = Field(description="measured seconds of the median step")


class DisaggregatedRun(StrictModel):
    """The comparison."""

    format: Literal["holmes-sim/disaggregated-run/1"]
    layout: str = Field(description="both sets of ranks and their microbatches, in words")
    seconds: dict[str, PartSeconds] = Field(description="the step and its parts")
    steps_s: tuple[float, ...] = Field(description="measured seconds of each timed step")
    error: float = Field(description="simulated / measured step - 1, a fraction")
    scale: float = Field(description="factor by which the run was slowed down")
    compute: str = Field(description="real or paced")
    computed_on: tuple[str, ...] = Field(description="devices that computed")
    notes: Notes = Field((), description="where the run or the lab differs from the assumptions of the simulation")
    cores: LabCores | None = Field(None, description="of the lab")


MODEL = DisaggregatedRun
