"""Changes of a fleet or its workload, ranked by their gain."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from holmes_sim.document_parts import Interrupted, PlanPrice
from sim.formats.fields import StrictModel

NAME = "what-if"
FORMAT = "holmes-sim/what-if/1"
WRITTEN_BY = ("what-if TOPO --json",)


class PresentPlan(PlanPrice):
    """The plan without a change."""

    step_s: float = Field(
        description="simulated seconds of a step; of islands, the mean of an inner step with its part of the exchanges"
    )
    tokens_per_s: float = Field(description="tokens per second")
    gap: float = Field(description="proven gap, a fraction: a gain smaller than this may be had without a change")


class ChangeRow(PlanPrice):
    """A change; without a plan its numbers are null."""

    change: str = Field(description="the change in words")
    step_s: float | None = Field(description="simulated seconds of a step")
    tokens_per_s: float | None = Field(description="tokens per second")
    gain: float | None = Field(
        description="gain in effective tokens per second over the present plan, a fraction; in tokens per second where both "
        "plans have no token_worth, null where one of them has none"
    )
    gain_at_most: float | None = Field(description="largest possible gain, a fraction; null if it was not replanned")
    gain_known: bool = Field(description="whether a gain, or a loss, is proved")
    cost: float | None = Field(description="rent that the change adds, in USD per hour; null if unknown")
    gain_per_usd_per_h: float | None = Field(description="gain over the added rent, in 1/(USD/h); null without an added rent")
    how: Literal["planned", "simulated", "unused"] = Field(
        description="replanned, only the present plan simulated on it, or an addition that is best left unused"
    )
    gap: float | None = Field(description="proven gap of its plan, a fraction; null if it was not replanned")
    present_plan_step_s: float | None = Field(description="seconds of a step of the present plan on the changed fleet")
    reason_if_none: str | None = Field(description="why there is no plan")
    edits: dict[str, Any] = Field(description="path in the topology file -> new value; null deletes the key")


class WhatIfDocument(StrictModel):
    """The changes, the largest gain first, those without a plan last."""

    format: Literal["holmes-sim/what-if/1"]
    base: PresentPlan
    rows: tuple[ChangeRow, ...]
    interrupted: Interrupted


MODEL = WhatIfDocument
