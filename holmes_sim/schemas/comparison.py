"""Plans of several strategies, or for several launch targets, beside each other."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from holmes_sim.document_parts import DevicesByCluster, GuessedRates, Interrupted, StepRange
from sim.formats.config_facts import ConfigFacts
from sim.formats.fields import StrictModel

NAME = "comparison"
FORMAT = "holmes-sim/comparison/1"
WRITTEN_BY = ("compare TOPO --json",)


class ComparedRow(StrictModel):
    """The plan of a strategy or for a target; without a plan, its numbers and its layout are null."""

    name: str = Field(description="strategy, or launch target")
    step_s: float | None = Field(description="simulated seconds of a step")
    step_range_s: StepRange | None
    guessed_rates: GuessedRates | None
    samples_per_s: float | None = Field(description="sequences per second")
    tokens_per_s_per_device: float | None = Field(description="tokens per second, over all devices of the fleet")
    upper_bound_fraction: float | None = Field(description="throughput over that of devices that compute all the time")
    slower_than_best: float | None = Field(description="step / fastest step - 1, a fraction")
    told_apart_from_best: bool | None = Field(
        description="whether the difference from the fastest plan is larger than the resolution; null for the fastest"
    )
    planning_s: float = Field(description="wall time of the planning in seconds")
    reason_if_none: str | None = Field(description="why there is no plan")
    read_by: str | None = Field(description="programs and versions that have read exports for a target; null for a strategy")
    config: ConfigFacts | None
    devices: DevicesByCluster | None


class ComparisonDocument(StrictModel):
    """The plans, in the order in which they were asked for."""

    format: Literal["holmes-sim/comparison/1"]
    rows: tuple[ComparedRow, ...]
    interrupted: Interrupted


MODEL = ComparisonDocument
