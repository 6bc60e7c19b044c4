"""Plans whose measurement says most about which layout is fastest."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.formats.config_facts import ConfigFacts
from sim.formats.fields import StrictModel

NAME = "shortlist"
FORMAT = "holmes-sim/shortlist/1"
WRITTEN_BY = ("plan TOPO --shortlist K --json",)


class ListedPlan(StrictModel):
    """A plan to measure."""

    folder: str = Field(description="its folder in that of -o")
    step_s: float = Field(description="predicted seconds of a step")
    expected_s: float = Field(description="expected seconds of a step after all measurements")
    expected_range_s: tuple[float, float] = Field(description="least and most seconds of 80 % of runs")
    share: float = Field(description="share of draws in which it is the fastest, a fraction")
    why: str = Field(description="why it is on the list, in words")
    config: ConfigFacts


class BestKnown(StrictModel):
    """The plan with the least expected step."""

    folder: str = Field(description="its folder; empty if it was not measured")
    expected_s: float = Field(description="expected seconds of a step")
    config: ConfigFacts


class Shortlist(StrictModel):
    """The list, the first choice first."""

    format: Literal["holmes-sim/shortlist/1"]
    target: str = Field(description="launch target")
    plans: tuple[ListedPlan, ...]
    candidates: int = Field(description="number of layouts among which the plans were chosen")
    measured: int = Field(description="number of measured layouts")
    best: BestKnown
    left_out: str = Field(description="why the target cannot express the plan of the search; empty if it can")


MODEL = Shortlist
