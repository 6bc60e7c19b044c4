"""How much faster attention and experts on devices of unlike types are than a plan: a short search beside that of the plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from holmes_sim import files
from planner.costs.context import PlanningContext
from planner.disaggregation import search
from planner.disaggregation.lower_bound import lower_bound
from planner.disaggregation.search import Found
from planner.limits import NO_LIMITS
from planner.placement.simulation import step
from planner.request import Request, Wishes
from planner.target import ANY
from planner.time_limit import TimeLimit
from sim import __version__
from sim.disaggregation.plan import DisaggregatedPlan, predict
from sim.disaggregation.stage import DisaggregatedStage
from sim.errors import HolmesError
from sim.formats import disaggregatedfile
from sim.plan.plan import MadeBy, Plan
from sim.units import Seconds, time_text
from sim.workload.routing import BALANCED

LONGEST_S: Seconds = 5.0
"""Time limit of the search (a guess)."""
SHARE = 0.1
"""Share of the time limit of a request that the search takes at most (a guess)."""
STRATEGY = "zebra"
"""Name of the strategy that makes such plans."""
LEAST_GAIN = 0.01
"""Least saving of a step that is told (a guess)."""


@dataclass(frozen=True, slots=True)
class Disaggregated:
    """A stage with attention and experts on two sets of ranks, its simulated step, what it saves of a plan's step, and a lower
    bound on the step of all stages of its search, None if it is unknown."""

    stage: DisaggregatedStage
    step: Seconds
    saved: float
    lower_bound_s: Seconds | None = None

    @property
    def plan(self) -> DisaggregatedPlan:
        """The plan of the stage, with its prediction."""
        return DisaggregatedPlan(self.stage, MadeBy(STRATEGY, __version__), predict(self.stage), self.lower_bound_s)

    def __str__(self) -> str:
        return (
            f"Faster, but no framework runs it: {self.stage} (zebra parallelism), {time_text(self.step)}, {self.saved:.0%} "
            f"less time{self._bound}. `-o FILE` also writes it, for `holmes-sim run`; docs/attention-and-experts.md says what "
            "is modelled."
        )

    @property
    def _bound(self) -> str:
        """The bound as a clause; empty without one."""
        known = self.lower_bound_s
        return "" if known is None else f" (no such stage that was searched takes less than {time_text(known)})"


def beside(file: Path) -> Path:
    """The file for the plan of a stage beside that of a plan: `plan.disaggregated.json` beside `plan.json`."""
    return file.with_name(f"{file.name.removesuffix('.json')}.disaggregated.json")


def remove_former(file: Path) -> Path | None:
    """Remove the file beside that of a plan which an earlier plan wrote, so that it is not taken for one of the new plan.

    The removed file; None where there is none, or only a file of another kind, which stays."""
    return files.remove(beside(file), disaggregatedfile.is_disaggregated)


def searched(
    request: Request, wanted: bool, progress: Callable[[str], None] = lambda text: None, seconds: Seconds = LONGEST_S
) -> Found | None:
    """The best stage with attention and experts on unlike devices, where the request pins and limits nothing and asks for no
    launch target; None where there is none, or it is not `wanted`. `progress` receives a status line. It takes at most so many
    `seconds`, `LONGEST_S` and `SHARE`."""
    is_free = request.wishes == Wishes() and request.limits == NO_LIMITS and not request.machines
    if not wanted or not is_free or request.target is None or request.target.name != ANY:
        return None
    if not request.workload.model.experts or request.workload.routing != BALANCED:  # of uneven experts its costs know nothing
        return None
    progress("attention and experts on unlike devices")
    limit = TimeLimit(min(SHARE * request.time_limit, LONGEST_S, seconds))
    try:
        return search.best(request.topology, request.workload, limit=limit)
    except HolmesError:  # the plan itself is not concerned
        return None


@dataclass(slots=True)
class SplitSearch:
    """`searched` beside the search for a plan: once its first plan is known, so that it does not delay that one.

    context: that of the plan. found: the stage that is known."""

    request: Request
    wanted: bool
    context: PlanningContext
    found: Found | None = field(default=None, init=False)
    _has_run: bool = field(default=False, init=False)

    def run(self) -> None:
        """Search in the time that is left, the first time it is called."""
        if not self._has_run:
            self._has_run = True
            self.found = searched(self.request, self.wanted, self.context.progress, self.context.limit.seconds_left)

    def finish(self) -> None:
        """Search where the plan came without a first one, unless it was interrupted."""
        try:
            if not self.context.interrupted:
                self.run()
        except KeyboardInterrupt:
            self.context.interrupted = True


def compared(found: Found | None, plan: Plan) -> Disaggregated | None:
    """What a stage saves of the step of a plan; None where it saves too little."""
    if found is None:
        return None
    saved = 1 - found.step / step(plan)
    if saved < LEAST_GAIN:
        return None
    least = lower_bound(found.stage.topology, found.stage.workload, TimeLimit(LONGEST_S))
    return Disaggregated(found.stage, found.step, saved, least)
