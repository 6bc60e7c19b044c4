"""A plan for the nodes that are left after some were lost, and the ranks that must move."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from holmes_sim.document_parts import Notes
from sim.formats.fields import StrictModel
from sim.formats.planfile import PlanFacts

NAME = "replan"
FORMAT = "holmes-sim/replan/1"
WRITTEN_BY = ("replan PLAN --lost NODE --json",)


class MovedRanks(StrictModel):
    """Ranks of the new plan."""

    all: int = Field(description="number of ranks")
    staying: int = Field(description="number of ranks that keep their device and weights")
    moving: int = Field(description="number of ranks that must load weights")


class StepChange(StrictModel):
    """The step of both plans."""

    before: float | None = Field(description="predicted seconds of the old plan; null if it has no prediction")
    after: float = Field(description="simulated seconds of the new plan")


class Alternative(StrictModel):
    """One of the two plans that were compared."""

    step_s: float = Field(description="simulated seconds of a step")
    ranks: int = Field(description="number of ranks")
    moving: int = Field(description="number of ranks that must load weights")


class ReplanDocument(StrictModel):
    """The new plan."""

    format: Literal["holmes-sim/replan/1"]
    lost: tuple[str, ...] = Field(description="lost nodes, numbered as in the old plan")
    renumbered: dict[str, str] = Field(description="node of the old plan -> its name in the new plan, where it differs")
    hosts: dict[str, str] = Field(description="node of the new plan -> its host names")
    ranks: MovedRanks
    weight_bytes_to_move: float = Field(description="bytes of weights that ranks must load")
    step_s: StepChange
    searched: Alternative | None = Field(description="the plan of a new search")
    stayed: Alternative | None = Field(description="the plan in which no rank moves")
    notes: Notes
    plan: PlanFacts = Field(description="the new plan, as in plan.json")


MODEL = ReplanDocument
