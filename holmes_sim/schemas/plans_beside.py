"""Plans from files beside each other, each with a simulated step."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from holmes_sim.document_parts import GuessedRates, StepRange
from sim.formats.config_facts import ConfigFacts
from sim.formats.fields import StrictModel

NAME = "plans-beside"
FORMAT = "holmes-sim/plans-beside/1"
WRITTEN_BY = ("compare PLAN PLAN --json",)


class SimulatedPlanRow(StrictModel):
    """A plan."""

    name: str = Field(description="its file")
    kind: str = Field(description="alike replicas, unlike pipelines, or attention and experts apart")
    plan_digest: str = Field(description="digest of the plan, as in its timelines")
    step_s: float = Field(description="simulated seconds of a step")
    step_range_s: StepRange | None
    guessed_rates: GuessedRates
    predicted_s: float | None = Field(description="seconds of a step that the file predicts; null without a prediction")
    tokens_per_s: float = Field(description="tokens per second")
    mfu: float = Field(description="model FLOPs utilisation, a fraction")
    slower_than_best: float = Field(description="seconds of a token / those of the fastest plan - 1, a fraction")
    told_apart_from_best: bool | None = Field(
        description="whether the difference from the fastest plan is larger than the resolution; null for the fastest"
    )
    peak_memory_bytes: float = Field(description="of the rank that needs most")
    devices: int = Field(description="devices that the plan uses")
    global_batch_size: int = Field(description="samples of a step")
    configs: tuple[ConfigFacts, ...] = Field(description="of each pipeline; none for attention and experts apart")


class PlansBesideDocument(StrictModel):
    """The plans, that with most tokens a second first."""

    format: Literal["holmes-sim/plans-beside/1"]
    rows: tuple[SimulatedPlanRow, ...]
    unlike: tuple[str, ...] = Field(description="what the plans do not have in common: fleets, models or sequences, batches")


MODEL = PlansBesideDocument
