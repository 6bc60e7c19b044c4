"""Options of plans in a study: pins, strategy, objective, time limit of the search."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from holmes_sim import targets
from planner import strategies
from planner.api import DEFAULT
from planner.islands.allowed_sync import EXACT, parse
from planner.request import OFFLOAD, Wishes
from sim.errors import OptionError
from sim.formats.fields import Count, StrictModel
from sim.formats.suggestions import suggestion
from sim.plan import schedules
from sim.plan.parallel_config import BLOCK, RECOMPUTE, ZERO_STAGES
from sim.plan.prediction import OBJECTIVES

OTHERS = ("strategy", "objective", "time_limit", "target", "sync")
"""Options that are not pins."""
OBJECTIVE = "step-time"
"""Objective where none is given."""


def _one_of(*known: Any) -> Any:
    """A validator that accepts the known values and suggests one for others."""

    def checked(value: object) -> object:
        if value not in known or isinstance(value, bool):
            raise ValueError(f"{value!r} is unknown{suggestion(str(value), map(str, known))}")
        return value

    return BeforeValidator(checked)


def _sync(text: str) -> str:
    """The text of allowed sync strategies, if it is one."""
    try:
        return parse(text).text
    except OptionError as error:
        raise ValueError(str(error)) from None


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
    objective: Annotated[str, _one_of(*OBJECTIVES)] = OBJECTIVE
    time_limit: Annotated[float, Field(ge=1)] = 50.0
    target: Annotated[str | None, _one_of(None, *targets.names())] = targets.ANY
    sync: Annotated[str, AfterValidator(_sync)] = EXACT

    @model_validator(mode="after")
    def _check_sync(self) -> OptionFacts:
        if self.sync != EXACT and (self.strategy, self.objective) != (DEFAULT, OBJECTIVE):
            raise ValueError(f"sync {self.sync} uses strategy {DEFAULT} and objective {OBJECTIVE}; leave out the others")
        return self

    def wishes(self) -> Wishes:
        """The pins as wishes of a request."""
        return Wishes(**{name: value for name, value in self.model_dump().items() if name not in OTHERS})
