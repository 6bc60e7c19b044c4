"""A simulated step of a plan: its prediction, and with --explain where the seconds go."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from holmes_sim.document_parts import ExplanationDocument, GuessedRates, StepRange
from sim.formats.fields import StrictModel
from sim.formats.planfile import PredictionFacts

NAME = "report"
FORMAT = "holmes-sim/report/1"
WRITTEN_BY = ("simulate PLAN --json", "simulate PLAN --explain --json")


class Simulation(StrictModel):
    """The work of the simulation."""

    seconds: float = Field(description="wall time of the simulation in seconds")
    events: int = Field(description="number of simulated events")
    ranks: int = Field(description="number of ranks of the plan")
    classes: int = Field(description="number of classes of equivalent ranks, one of each of which was simulated")


class Report(StrictModel):
    """The simulated step."""

    format: Literal["holmes-sim/report/1"]
    report: PredictionFacts = Field(description="the numbers of the step, as in the prediction of a plan")
    step_range_s: StepRange
    guessed_rates: GuessedRates
    simulation: Simulation
    confirmed: bool | None = Field(
        description="whether the step is the one that the plan predicts, but for rounding; null if the plan has no prediction"
    )
    explanation: ExplanationDocument | None = Field(None, description="with --explain")


MODEL = Report
