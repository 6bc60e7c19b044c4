"""The distribution of the step time of a plan with faults."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.formats.fields import StrictModel

NAME = "trouble"
FORMAT = "holmes-sim/trouble/1"
WRITTEN_BY = ("simulate PLAN --stragglers SHARE:TIMES --json (and the other faults)",)


class Straggling(StrictModel):
    """Slow devices."""

    share: float = Field(description="probability that a device is slow")
    factor: float = Field(description="how many times as long a slow device computes")


class Degradation(StrictModel):
    """Slow links."""

    share: float = Field(description="probability that a NIC or trunk is slow")
    rate: float = Field(description="fraction of its rate that a slow one has")


class Flapping(StrictModel):
    """Links that fail for a short time."""

    up: float = Field(description="mean seconds for which a NIC or trunk is up")
    down: float = Field(description="seconds for which it is then down")


class FaultKinds(StrictModel):
    """The faults that seeds draw."""

    stragglers: Straggling | None
    jitter: float = Field(description="standard deviation of the seconds of a compute action over their mean")
    degraded: Degradation | None
    flaps: Flapping | None


class StepTimes(StrictModel):
    """Seconds of a step."""

    predicted: float = Field(description="seconds in the prediction of the plan, or without faults if it has none")
    fault_free: float = Field(description="simulated seconds without faults")
    mean: float = Field(description="mean seconds over the seeds")
    p50: float = Field(description="seconds that half of the seeds do not exceed")
    p95: float = Field(description="seconds that 95 % of the seeds do not exceed")
    p99: float = Field(description="seconds that 99 % of the seeds do not exceed")
    slowest: float = Field(description="most seconds of a seed")


class SeedStep(StrictModel):
    """The step of a seed."""

    seed: int = Field(description="number of the seed")
    step_s: float = Field(description="simulated seconds of the step")


class FaultSimulation(StrictModel):
    """The work of the simulation."""

    seconds: float = Field(description="wall time of the simulations in seconds")
    distinct_steps: int = Field(description="number of different steps that were simulated")
    interrupted: bool = Field(description="whether Ctrl-C ended the simulations early")


class Trouble(StrictModel):
    """The distribution of the step time."""

    format: Literal["holmes-sim/trouble/1"]
    trouble: FaultKinds
    step_s: StepTimes
    mean_within: float | None = Field(
        description="half of the 95 % confidence interval of the mean, as a fraction of it; null for one seed"
    )
    slowest_seed: int = Field(description="number of the seed with the longest step")
    seeds: tuple[SeedStep, ...]
    simulation: FaultSimulation


MODEL = Trouble
