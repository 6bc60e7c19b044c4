"""Parts that several JSON documents of commands share: a step with its range, layouts, explanations, seconds by kind.

The docstrings and descriptions of these pydantic models, and of those in `holmes_sim.schemas`, are the text of the JSON
Schemas. Each number has a description with its unit."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sim.formats.fields import StrictModel

StepRange = Annotated[
    tuple[float, float], Field(description="range in which 80 % of measured steps are expected: least and most seconds")
]
GuessedRates = Annotated[tuple[str, ...], Field(description="device types whose rates are guesses that the step rests on")]
Interrupted = Annotated[bool, Field(description="whether Ctrl-C ended the command early")]
Notes = Annotated[tuple[str, ...], Field(description="notes in words")]
SecondsByKind = Annotated[dict[str, float], Field(description="kind (forward, bubble, dp ...) -> seconds")]
DevicesByCluster = Annotated[
    dict[str, int], Field(description="cluster -> number of all devices of the occupied nodes: whole nodes are paid for")
]

SyncText = Annotated[
    str | None, Field(description="sync strategy between islands in few words; exact: synchronous training, no islands")
]
InnerSteps = Annotated[
    int | None, Field(description="optimizer steps between two exchanges of the same parameters (H of DiLoCo)")
]
Price = Annotated[
    Literal["exact", "bounded", "changed"] | None,
    Field(
        description="exact: the result of synchronous training; bounded: islands differ for a bounded number of steps, or send "
        "rounded values; changed: another objective"
    ),
]
TokenWorth = Annotated[
    float | None, Field(description="tokens of synchronous training with the loss of one token, at most 1; null if unknown")
]
LeastWorth = Annotated[float | None, Field(description="least token_worth by the published losses")]
LargestWorth = Annotated[float | None, Field(description="largest token_worth by the published losses")]
EffectiveTokens = Annotated[float | None, Field(description="tokens per second x token_worth; null if unknown")]


class PlanPrice(StrictModel):
    """What a plan gives up for its speed, and what a token is worth; all null without a plan."""

    sync: SyncText
    inner_steps: InnerSteps
    price: Price
    token_worth: TokenWorth
    token_worth_low: LeastWorth
    token_worth_high: LargestWorth
    effective_tokens_per_s: EffectiveTokens


class RankSeconds(StrictModel):
    """Seconds of one rank, which represents all ranks of its class."""

    pipeline: int | None = Field(None, description="where pipelines are unlike: the index of its pipeline")
    stage: int = Field(description="pipeline rank, a number from 0")
    rank: int = Field(description="number of the rank")
    ranks: int = Field(description="number of ranks in the class")
    seconds: SecondsByKind


class PathSeconds(StrictModel):
    """Seconds of the critical path on one pipeline rank."""

    pipeline: int | None = Field(None, description="where pipelines are unlike: the index of its pipeline")
    stage: int = Field(description="pipeline rank, a number from 0")
    seconds: SecondsByKind


class Passage(StrictModel):
    """A part of the critical path."""

    start_s: float = Field(description="seconds from the start of the step")
    seconds: float = Field(description="duration in seconds")
    what: str = Field(description="the actions, in words")


class Kernel(StrictModel):
    """Kernels of one name in one layer and microbatch."""

    name: str
    forward: float = Field(description="seconds of the forward pass")
    forward_limit: str = Field(description="what limits the forward pass: compute, memory or launch")
    backward: float = Field(description="seconds of the backward pass")
    backward_limit: str = Field(description="what limits the backward pass: compute, memory or launch")


class DeviceLayer(StrictModel):
    """One layer and microbatch on a type of device."""

    device: str = Field(description="device type")
    forward: float = Field(description="seconds of the forward pass")
    backward: float = Field(description="seconds of the backward pass, without recomputation")
    kernels: tuple[Kernel, ...]
    measured: bool = Field(description="whether the seconds come from a profile; then the kernels do not add up to them")


class ExplanationDocument(StrictModel):
    """Where the seconds of a simulated step go. Each of `ranks`, all of `critical_path` and all of `chain` add up to it."""

    step_s: float = Field(description="seconds of the simulated step")
    ranks: tuple[RankSeconds, ...] = Field(description="one rank of each class of equivalent ranks")
    mean: SecondsByKind
    critical_path: tuple[PathSeconds, ...] = Field(description="the critical path, added up by pipeline rank and kind")
    chain: tuple[Passage, ...] = Field(description="the critical path in order")
    layers: tuple[DeviceLayer, ...]


class Comparison(StrictModel):
    """Seconds of one kind, means over ranks; predicted and simulated ones are multiplied by the scale of the run."""

    predicted_s: float | None = Field(description="seconds in the prediction of the plan; null if it has none")
    simulated_s: float | None = Field(description="seconds of a new simulation; null if unknown")
    measured_s: float | None = Field(description="measured seconds; null if unknown")
    error: float | None = Field(description="simulated / measured - 1, a fraction; null if one is missing")
    least_s: float | None = Field(None, description="least measured seconds of a rank")
    most_s: float | None = Field(None, description="most measured seconds of a rank")


class ComparedMemory(StrictModel):
    """Memory of a device of one pipeline rank, on the rank that took most."""

    stage: int = Field(description="pipeline rank, a number from 0")
    name: Literal["allocated", "reserved", "outside"] = Field(
        description="what torch needs, what it takes from the device for that, and what the device has in use beside it"
    )
    predicted_bytes: float = Field(description="bytes that the model of memory predicts")
    measured_bytes: float = Field(description="most bytes that were measured during the steps")
    error: float | None = Field(description="predicted / measured - 1, a fraction; null if nothing was measured")
