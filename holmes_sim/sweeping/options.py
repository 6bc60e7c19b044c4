"""Options of plans in a study: pins, strategy, objective, time limit of the search."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from holmes_sim import targets
from planner import strategies
from planner.api import DEFAULT
from planner.request import OFFLOAD, Wishes
from sim.formats.fields import Count, StrictModel
from sim.formats.suggestions import suggestion
from sim.plan import schedules
from sim.plan.parallel_config import BLOCK, RECOMPUTE, ZERO_STAGES
from sim.plan.prediction import OBJECTIVES

OTHERS = ("strategy", "objective", "time_limit", "target")
"""Options that are not pins."""


def _one_of(*known: Any) -> Any:
    """A validator that accepts the known values and suggests one for others."""

    def checked(value: object) -> object:
        if value not in known or isinstance(value, bool):
            raise ValueError(f"{value!r} is unknown{suggestion(str(value), map(str, known))}")
        return value

    return BeforeValidator(checked)


class OptionFacts(StrictModel):
    """Options of a plan, named like those of `holmes-sim plan`, with `_` for `-`. The planner chooses pins that are not
    given.
    """

    tp: Count | None = None
    pp: Count | None = None
    dp: Count | None = None
    cp: Count | None = None
    ep: Count | None = None
    etp: Count | None = None
    vpp: Count | None = None
    microbatch_size: Count | None = None
    schedule: Annotated[str | None, _one_of(None, *schedules.names())] = None
    recompute: Annotated[str | None, _one_of(None, *RECOMPUTE, BLOCK)] = None
    zero_stage: Annotated[int | None, _one_of(None, *ZERO_STAGES)] = None
    zero_shard_size: Count | None = None
    offload: Annotated[str | None, _one_of(None, *OFFLOAD)] = None
    strategy: Annotated[str, _one_of(*strategies.names())] = DEFAULT
    objective: Annotated[str, _one_of(*OBJECTIVES)] = "step-time"
    time_limit: Annotated[float, Field(ge=1)] = 50.0
    target: Annotated[str | None, _one_of(None, *targets.names())] = targets.ANY

    def wishes(self) -> Wishes:
        """The pins as wishes of a request."""
        return Wishes(**{name: value for name, value in self.model_dump().items() if name not in OTHERS})
