"""A measured step of a plan that ran with torch, beside its simulation."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from holmes_sim.document_parts import ComparedMemory, Comparison, Notes
from sim.formats.fields import StrictModel

NAME = "run"
FORMAT = "holmes-sim/run/1"
WRITTEN_BY = ("run PLAN --json", "lab PLAN --json")


class PredictedSteps(StrictModel):
    """The simulated step, multiplied by the scale."""

    step_s: float = Field(description="seconds of a new simulation")
    plan_step_s: float | None = Field(description="seconds in the prediction of the plan; null if it has none")


class TimedSteps(StrictModel):
    """The measured steps."""

    step_s: float = Field(description="median seconds of a step")
    spread: float | None = Field(description="(longest - shortest) / median, a fraction; null without timed steps")
    steps_s: tuple[float, ...] = Field(description="seconds of each step")


class LabCores(StrictModel):
    """How busy the cores of this machine were in the lab."""

    busy: float = Field(description="fraction of the cores' time in which any program computed")
    stolen: float = Field(description="fraction of the cores' time that the host of a virtual machine took")
    ranks: float | None = Field(default=None, description="fraction of the cores' time that the ranks used, if counted")
    valid: bool = Field(description="whether the measurement is valid: the cores had enough time left")


class RunDocument(StrictModel):
    """The comparison."""

    format: Literal["holmes-sim/run/1"]
    predicted: PredictedSteps
    measured: TimedSteps
    error: float | None = Field(description="simulated / measured - 1, a fraction")
    scale: float = Field(description="factor by which the run was slowed down")
    compute: str = Field(description="real or paced")
    computed_on: tuple[str, ...] = Field(description="devices that computed")
    seconds: dict[str, Comparison] = Field(description="compute, exposed, bubble and other, over all ranks")
    memory: tuple[ComparedMemory, ...] = Field((), description="memory of devices; empty on a CPU and with paced compute")
    notes: Notes = Field((), description="where the run or the lab differs from the assumptions of the simulation")
    cores: LabCores | None = Field(None, description="of the lab")


MODEL = RunDocument
