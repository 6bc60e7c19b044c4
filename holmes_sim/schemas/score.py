"""What a launch of today should reach on a fleet, and how much faster the best plan is."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from holmes_sim.document_parts import ExplanationDocument, GuessedRates, StepRange
from holmes_sim.schemas.report import Report
from sim.formats.fields import StrictModel

NAME = "score"
FORMAT = "holmes-sim/score/1"
WRITTEN_BY = ("score LAUNCH --topo TOPO --json",)


class TodayReport(Report):
    """The simulated step of the launch, and whether it fits."""

    fits: bool = Field(description="whether it fits the memory of every device")
    has_headroom: bool = Field(description="whether it also leaves the head-room of memory free, as plans do")


class BestForLaunch(StrictModel):
    """The best plan for the same framework."""

    tp: int = Field(description="tensor-parallel degree")
    pp: int = Field(description="number of pipeline ranks")
    dp: int = Field(description="data-parallel degree")
    cp: int = Field(description="context-parallel degree")
    ep: int = Field(description="expert-parallel degree")
    vpp: int = Field(description="number of virtual stages on a pipeline rank")
    microbatch_size: int = Field(description="sequences of a microbatch")
    schedule: str
    zero_stage: int = Field(description="ZeRO stage, 0 to 3")
    recompute: str
    step_s: float = Field(description="simulated seconds of a step")
    tokens_per_s: float = Field(description="tokens per second")
    mfu: float = Field(description="model FLOPs utilisation, a fraction")
    step_range_s: StepRange
    guessed_rates: GuessedRates


class ScoreDocument(StrictModel):
    """The launch of today beside the best plan."""

    format: Literal["holmes-sim/score/1"]
    target: str = Field(description="the framework, as a launch target")
    today: TodayReport
    explanation: ExplanationDocument = Field(description="where the seconds of today's step go")
    not_modelled: tuple[str, ...] = Field(description="arguments that are not modelled")
    assumed: tuple[str, ...] = Field(description="what the launch does not say and was assumed, in words")
    best: BestForLaunch | None
    faster: float | None = Field(description="today's step / step of the best plan - 1, a fraction; null without a best plan")
    reason_if_none: str | None = Field(description="why there is no best plan")


MODEL = ScoreDocument
