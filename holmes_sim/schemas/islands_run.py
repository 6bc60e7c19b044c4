"""Measured outer periods of a plan of islands that ran with torch, beside their simulation."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from holmes_sim.document_parts import Notes
from holmes_sim.schemas.run import LabCores
from sim.formats.fields import StrictModel

NAME = "islands-run"
FORMAT = "holmes-sim/islands-run/1"
WRITTEN_BY = ("run ISLANDS --json", "lab ISLANDS --json")


class TwoTimes(StrictModel):
    """Seconds of one part of an outer period."""

    simulated: float = Field(description="simulated seconds, multiplied by the scale")
    measured: float = Field(description="measured seconds, the mean of all timed periods")


class IslandsRunDocument(StrictModel):
    """The comparison."""

    format: Literal["holmes-sim/islands-run/1"]
    sync: str = Field(description="the sync strategy, in words")
    seconds: dict[str, TwoTimes] = Field(description="the outer period and its parts")
    periods_s: tuple[float, ...] = Field(description="measured seconds of each timed outer period")
    error: float = Field(description="simulated / measured outer period - 1, a fraction")
    losses: tuple[float, ...] = Field(description="loss of each inner step, the untimed period included; zeros if paced")
    scale: float = Field(description="factor by which the run was slowed down")
    compute: str = Field(description="real or paced")
    computed_on: tuple[str, ...] = Field(description="devices that computed")
    notes: Notes = Field((), description="where the run or the lab differs from the assumptions of the simulation")
    cores: LabCores | None = Field(None, description="of the lab")


MODEL = IslandsRunDocument
