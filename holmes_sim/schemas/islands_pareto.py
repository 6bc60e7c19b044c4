"""Plans that trade speed, money and what sync strategies between islands give up."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from holmes_sim.document_parts import Interrupted, PlanPrice
from sim.formats.fields import StrictModel

NAME = "islands-pareto"
FORMAT = "holmes-sim/islands-pareto/1"
WRITTEN_BY = ("plan TOPO --sync any --pareto --json",)


class IslandsParetoRow(PlanPrice):
    """A plan of the front."""

    step_s: float = Field(
        description="simulated seconds of a step; of islands, the mean of an inner step with its part of the exchanges"
    )
    tokens_per_s: float = Field(description="tokens per second")
    usd_per_effective_token: float | None = Field(
        description="rent for each effective token in USD, for each token where token_worth is null; null if a price is unknown"
    )
    devices: int = Field(description="number of devices with a rank")
    islands: list[list[str]] = Field(description="clusters of each island; one for an exact plan")


class IslandsPareto(StrictModel):
    """The front, the fastest plan first."""

    format: Literal["holmes-sim/islands-pareto/1"]
    allowed: str = Field(description="the allowed sync strategies, as the text of --sync")
    rows: tuple[IslandsParetoRow, ...]
    other_plans: int = Field(description="number of plans that are no better than one of the rows in anything")
    plans_of_unknown_worth: int = Field(description="number of plans that are not compared")
    interrupted: Interrupted


MODEL = IslandsPareto
