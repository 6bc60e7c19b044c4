"""Goodput of days of training with failures, checkpoints and restarts."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.formats.fields import StrictModel

NAME = "goodput"
FORMAT = "holmes-sim/goodput/1"
WRITTEN_BY = ("goodput PLAN --checkpoint TIME --restart TIME --json",)


class FailingRun(StrictModel):
    """The run, and what fails in it."""

    counts: dict[str, int] = Field(description="kind (device, node, link) -> number of them")
    mtbf: dict[str, float] = Field(description="kind -> mean seconds between failures of one of them")
    checkpoint: float = Field(description="seconds of a checkpoint")
    restart: float = Field(description="seconds of a restart")
    interval: float = Field(description="seconds between checkpoints, whole steps")


class Intervals(StrictModel):
    """Checkpoint intervals."""

    used: float = Field(description="seconds between checkpoints, whole steps")
    young: float = Field(description="seconds of Young's optimum")
    daly: float = Field(description="seconds of Daly's optimum")


class Goodputs(StrictModel):
    """Fractions of the time that are spent on useful steps."""

    closed_form: float = Field(description="expected fraction by the closed form")
    mean: float = Field(description="mean fraction over the seeds")
    least: float = Field(description="least fraction of a seed")
    most: float = Field(description="largest fraction of a seed")


class TimeShares(StrictModel):
    """Fractions of the time, means over the seeds."""

    useful: float = Field(description="fraction spent on useful steps")
    saving: float = Field(description="fraction spent on checkpoints")
    lost: float = Field(description="fraction spent on steps that failures undo")
    restarting: float = Field(description="fraction spent on restarts")


class SeedAccount(StrictModel):
    """The run of a seed."""

    seed: int = Field(description="number of the seed")
    useful: float = Field(description="seconds of useful steps")
    saving: float = Field(description="seconds of checkpoints")
    lost: float = Field(description="seconds of steps that failures undo")
    restarting: float = Field(description="seconds of restarts")
    failures: dict[str, int] = Field(description="kind -> number of failures")


class WholeRunDocument(StrictModel):
    """A whole training run with failures."""

    tokens: float = Field(description="number of tokens that are trained")
    days: tuple[float, float, float] = Field(description="days at the predicted step, and at the least and most of its range")
    device_hours: float = Field(description="hours of all devices of the plan together")
    usd: float | None = Field(description="rent in USD; null if a price is unknown")
    mwh: float | None = Field(description="energy of the devices in MWh; null if a power is unknown")
    goodput: float = Field(description="fraction of the time spent on steps that no failure undoes")
    checkpoint_s: float = Field(description="seconds of a checkpoint")
    restart_s: float = Field(description="seconds of a restart")


class GoodputDocument(StrictModel):
    """The simulated runs."""

    format: Literal["holmes-sim/goodput/1"]
    run: FailingRun
    step_s: float = Field(description="seconds of a step")
    days: float = Field(description="days of a run")
    mean_time_between_failures_s: float = Field(description="mean seconds between failures of the whole run")
    interval_s: Intervals
    goodput: Goodputs
    shares: TimeShares
    failures: dict[str, float] = Field(description="kind -> number of failures of a run, mean over the seeds")
    tokens: float = Field(description="number of tokens of useful steps, mean over the seeds")
    seeds: tuple[SeedAccount, ...]
    whole_run: WholeRunDocument | None = Field(None, description="with --tokens")


MODEL = GoodputDocument
