"""One software stack fitted to your own runs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.formats.fields import StrictModel
from sim.formats.stack_facts import StackFacts

NAME = "own-calibration"
FORMAT = "holmes-sim/own-calibration/1"
WRITTEN_BY = ("calibrate --runs FOLDER --json",)


class MeasuredRun(StrictModel):
    """A plan of a folder of runs, and what its run took."""

    folder: str
    outcome: str = Field(description="ran, failed (for want of memory) or not measured")
    step_s: float | None = Field(description="measured seconds of a step; null if it did not run")
    source: str = Field(description="where the step was read")


class OwnCalibration(StrictModel):
    """The fit, and the runs of the folders."""

    format: Literal["holmes-sim/own-calibration/1"]
    stack: StackFacts = Field(description="the stack, as in its file")
    runs: tuple[MeasuredRun, ...]


MODEL = OwnCalibration
