"""Plans that trade step time, cost and energy: none is dominated by another."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from holmes_sim.document_parts import DevicesByCluster, Interrupted
from sim.formats.config_facts import ConfigFacts
from sim.formats.fields import StrictModel

NAME = "pareto"
FORMAT = "holmes-sim/pareto/1"
WRITTEN_BY = ("plan TOPO --pareto --json",)


class ParetoRow(StrictModel):
    """A plan of the front."""

    step_s: float = Field(description="simulated seconds of a step")
    usd_per_token: float | None = Field(description="rent for each token in USD; null if a price is unknown")
    joules_per_token: float | None = Field(description="energy for each token in joules; null if a power is unknown")
    samples_per_s: float = Field(description="sequences per second")
    devices: DevicesByCluster
    config: ConfigFacts


class Pareto(StrictModel):
    """The front, the fastest plan first."""

    format: Literal["holmes-sim/pareto/1"]
    objectives: tuple[Literal["step-time", "cost", "energy"], ...] = Field(description="what is traded")
    rows: tuple[ParetoRow, ...]
    interrupted: Interrupted


MODEL = Pareto
