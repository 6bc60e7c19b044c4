"""The proof of plans with mixed stages, beside that of whole stages: in a second process, where this machine has a core for it.

It bounds the plans that are faster than the first plan of the search, and simulates some of them; so its result is the same
wherever and whenever it runs. Where the search meanwhile found a plan that is faster by more than it aims for
(`Budgets.target_gap`) and the bound is too low for that, the proof is done again below its step."""

from __future__ import annotations

import copy
import math
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType

from planner.bounds.mixed_deadline import MixedBound
from planner.costs.context import PlanningContext
from planner.placement.simulation import step
from planner.request import Request
from planner.search.budgets import Budgets
from planner.search.certificate import mixed_lower_bound, mixed_seconds, work_of_mixed
from planner.search.incumbent import Incumbent
from planner.search.mixed_exhaust import exhaust_mixed
from planner.search.mixed_trials import simulate_holders
from planner.second_process import AHEAD_S, BESIDE_FROM, SecondProcess, has_free_core
from sim.plan.plan import Plan
from sim.units import Seconds

ACTIVITY = "bounding plans with mixed stages"
"""What the search says that it does meanwhile."""


@dataclass(frozen=True, slots=True)
class Proved:
    """The bound of plans with mixed stages (None where there are none), the fastest plan known to the proof, and whether the
    time limit ended it."""

    bound: MixedBound | None
    best: Plan
    cut_off: bool


@dataclass(slots=True)
class MixedProof:
    """The proof for a request. It is a context manager, which ends its process."""

    context: PlanningContext
    _first: Plan | None = None
    _work_bound: Seconds = 0.0
    _open: ExitStack = field(default_factory=ExitStack)
    _second: SecondProcess[Proved] | None = None

    def __enter__(self) -> MixedProof:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._open.close()

    @property
    def is_beside(self) -> bool:
        """Whether it runs in a second process."""
        return self._second is not None

    def begin(self, incumbent: Incumbent) -> None:
        """Begin the proof below the step of the first plan, where a second process is of use."""
        self._first, self._work_bound = incumbent.best, incumbent.work_bound
        context, request, left = self.context, incumbent.request, incumbent.limit.seconds_left - AHEAD_S
        is_small = request.topology.fleet.devices < BESIDE_FROM
        if self._first is None or work_of_mixed(incumbent) is None or is_small or context.every_step or context.punctual:
            return
        if left > 0 and has_free_core():
            limited = replace(request, time_limit=left)
            call = partial(_in_process, context, limited, self._first, self._work_bound, incumbent.budgets)
            self._second = self._open.enter_context(SecondProcess(call))

    def reserved(self, incumbent: Incumbent) -> Seconds:
        """Seconds of the time limit that the proof of whole stages leaves for this one: beside it, for its answer alone."""
        seconds = mixed_seconds(incumbent)
        return min(seconds, AHEAD_S) if self.is_beside else seconds

    def collect(self, incumbent: Incumbent) -> MixedBound | None:
        """The bound of plans with mixed stages below the best step, None where there are none; faster plans are kept."""
        found = self._answer(incumbent)
        if found is None:
            return proved(incumbent, incumbent.lower_bound)
        incumbent.limit.reached |= found.cut_off
        if step(found.best) < incumbent.cutoff:
            incumbent.keep(found.best)
        enough = min(incumbent.target, incumbent.lower_bound)
        much_faster = incumbent.cutoff < step(found.best) * (1 - incumbent.budgets.target_gap)
        if found.bound is None:
            return None
        if found.bound.seconds >= enough or not much_faster:
            return found.bound._replace(seconds=min(found.bound.seconds, incumbent.cutoff))
        return proved(incumbent, incumbent.lower_bound)

    def _answer(self, incumbent: Incumbent) -> Proved | None:
        """The result of the second process, or of the same proof in this one; None without a first plan."""
        if self._first is None:
            return None
        if self._second is not None:
            has_ended = self._second.ends(incumbent.limit.seconds_left, lambda: incumbent.report(ACTIVITY))
            answer = self._second.answer() if has_ended else None
            if answer is not None:
                best = replace(answer.best, topology=incumbent.request.topology, workload=incumbent.request.workload)
                return replace(answer, best=best)
        quiet = copy.copy(self.context)  # its steps are not those of the search
        quiet.watch, quiet.progress = lambda state: None, lambda text: self.context.progress(ACTIVITY)
        inner = Incumbent(incumbent.request, quiet, incumbent.budgets, incumbent.limit, self._first)
        return _below_first(inner, self._work_bound)


def proved(incumbent: Incumbent, enough: Seconds = math.inf) -> MixedBound | None:
    """A lower bound of plans with mixed stages below the best step, None where there are none; faster plans are kept.

    enough: no bound above these seconds is needed."""
    bound = mixed_lower_bound(incumbent)
    if bound is None:
        return None
    simulate_holders(incumbent, bound)
    return exhaust_mixed(incumbent, bound, enough)


def _in_process(
    known: PlanningContext, request: Request, first: Plan, work_bound: Seconds, budgets: Budgets
) -> Proved:  # fmt: skip
    """The proof below the step of the first plan, in a process of its own, with the costs that a context knows."""
    context = known.of(request)
    return _below_first(Incumbent(request, context, budgets, context.limit, first), work_bound)


def _below_first(incumbent: Incumbent, work_bound: Seconds) -> Proved:
    """The proof of an incumbent whose best plan is the first plan."""
    assert incumbent.best is not None
    incumbent.work_bound = work_bound
    bound, best = proved(incumbent), incumbent.best
    return Proved(bound._replace(left=()) if bound is not None else None, best, incumbent.limit.reached)
