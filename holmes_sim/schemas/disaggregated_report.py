"""A simulated step of a plan with attention and experts on two sets of ranks."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.formats.disaggregatedfile import DisaggregatedPredictionFacts
from sim.formats.fields import StrictModel

NAME = "disaggregated-report"
FORMAT = "holmes-sim/disaggregated-report/1"
WRITTEN_BY = ("simulate DISAGGREGATED --json",)


class DisaggregatedReport(StrictModel):
    """The simulated step."""

    format: Literal["holmes-sim/disaggregated-report/1"]
    layout: str = Field(description="both sets of ranks and their microbatches, in words")
    report: DisaggregatedPredictionFacts
    memory_room_bytes: tuple[float, float] = Field(description="bytes that an attention rank, and an expert rank, may take")
    simulation_seconds: float = Field(description="wall time of the simulation in seconds")
    confirmed: bool | None = Field(description="whether the step is the predicted one; null if the plan predicts none")


MODEL = DisaggregatedReport
