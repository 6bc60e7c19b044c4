"""Software stacks fitted to measured runs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.formats.fields import StrictModel
from sim.formats.stack_facts import StackFacts

NAME = "calibration"
FORMAT = "holmes-sim/calibration/1"
WRITTEN_BY = ("calibrate --json",)


class CommonErrors(StrictModel):
    """Mean absolute relative errors of the step, each source with the same weight."""

    default: float = Field(description="error with the default stack, a fraction")
    fitted: float = Field(description="error with the common fit, a fraction")
    source_left_out: float = Field(description="error on each source by a fit without it, a fraction")


class CommonFit(StrictModel):
    """One set of constants for all sources."""

    fitted: dict[str, float | str] = Field(description="constant -> share (a number), or time (text with its unit)")
    error: CommonErrors


class CalibrationDocument(StrictModel):
    """The fits."""

    format: Literal["holmes-sim/calibration/1"]
    stacks: tuple[StackFacts, ...] = Field(description="each stack, as in its file")
    common: CommonFit | None = Field(None, description="one set of constants for all sources")


MODEL = CalibrationDocument
