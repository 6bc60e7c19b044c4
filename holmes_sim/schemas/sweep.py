"""The plans of all scenarios of a study."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from holmes_sim.document_parts import (
    EffectiveTokens,
    InnerSteps,
    Interrupted,
    LargestWorth,
    LeastWorth,
    Price,
    SyncText,
    TokenWorth,
)
from sim.formats.fields import StrictModel

NAME = "sweep"
FORMAT = "holmes-sim/sweep/1"
WRITTEN_BY = ("sweep STUDY --json",)


class SweepRow(StrictModel):
    """A scenario: the varied keys, whose names are in `keys`, and its plan. Without a plan the numbers are null.

    Of a plan of islands, numbers that it does not have are null, and so are parts of the layout in which islands differ."""

    model_config = ConfigDict(extra="allow", frozen=True)

    step_s: float | None = Field(
        description="simulated seconds of a step; of islands, the mean of an inner step with its part of the exchanges"
    )
    samples_per_s: float | None = Field(description="sequences per second")
    tokens_per_s: float | None = Field(description="tokens per second")
    tflops_per_device: float | None = Field(description="model TFLOP/s of a device")
    mfu: float | None = Field(description="model FLOPs utilisation, a fraction")
    bubble_fraction: float | None = Field(description="fraction of the step in which a rank waits for work, mean over ranks")
    exposed_communication_s: float | None = Field(description="seconds of communication that does not overlap compute, mean")
    upper_bound_fraction: float | None = Field(description="throughput over that of devices that compute all the time")
    usd_per_token: float | None = Field(description="rent for each token in USD")
    joules_per_token: float | None = Field(description="energy for each token in joules")
    gap: float | None = Field(description="proven gap to the best plan, a fraction")
    status: str = Field(description="planned, or why there is no plan in one word")
    tp: int | None = Field(description="tensor-parallel degree")
    pp: int | None = Field(description="number of pipeline ranks")
    dp: int | None = Field(description="data-parallel degree")
    cp: int | None = Field(description="context-parallel degree")
    ep: int | None = Field(description="expert-parallel degree")
    vpp: int | None = Field(description="number of virtual stages on a pipeline rank")
    microbatch_size: int | None = Field(description="sequences of a microbatch")
    schedule: str | None
    recompute: str | None
    zero_stage: int | None = Field(description="ZeRO stage, 0 to 3")
    devices: int | None = Field(description="number of devices with a rank")
    clusters: str | None = Field(description="clusters of the plan, joined by +; islands by |")
    sync: SyncText
    inner_steps: InnerSteps
    price: Price
    token_worth: TokenWorth
    token_worth_low: LeastWorth
    token_worth_high: LargestWorth
    effective_tokens_per_s: EffectiveTokens
    plan_of: str | None = Field(
        description="where the plan is that of another scenario, which this one can have, too: in what that one differs"
    )
    planning_s: float | None = Field(description="wall time of the planning in seconds")
    reason_if_none: str | None = Field(description="why there is no plan")


class SweepDocument(StrictModel):
    """The finished scenarios, in the order of the study."""

    format: Literal["holmes-sim/sweep/1"]
    name: str = Field(description="name of the study")
    keys: tuple[str, ...] = Field(description="varied keys of the rows, with their units")
    rows: tuple[SweepRow, ...]
    interrupted: Interrupted


MODEL = SweepDocument
