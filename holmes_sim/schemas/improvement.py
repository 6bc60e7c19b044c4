"""A state of a running search that is better than the one before."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.formats.fields import StrictModel

NAME = "improvement"
FORMAT = "holmes-sim/improvement/1"
WRITTEN_BY = ("plan TOPO --json-lines (all lines but the last)",)


class Improvement(StrictModel):
    """The best plan so far and its bound."""

    format: Literal["holmes-sim/improvement/1"]
    seconds: float = Field(description="seconds since the start of the command")
    activity: str = Field(description="what the search does, in words")
    step_s: float = Field(description="simulated seconds of the step of the best plan so far")
    lower_bound_s: float = Field(description="seconds below which no searched plan can be")
    gap: float = Field(description="1 - lower bound / step, a fraction")


MODEL = Improvement
