"""Moves of layers of the next plan, in a second process while this one moves those of a plan (`planner.search.crowded_links`).

Moves from one plan depend on others only by the best step known. So a second process finds what this one would find, unless
this one found a faster plan meanwhile: then that is left out, and these moves are made here, below the step of that plan."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import TypeAlias

from planner.costs.context import PlanningContext
from planner.request import Request
from planner.search.budgets import Budgets
from planner.search.incumbent import Incumbent
from planner.second_process import AHEAD_S, BESIDE_FROM, SecondProcess, has_free_core
from sim.plan.plan import Plan
from sim.units import Seconds

Descend: TypeAlias = Callable[[Incumbent, Plan, Seconds], None]
"""Makes the moves from a plan, whose step takes some seconds, for an incumbent. It can be pickled."""
Moved: TypeAlias = tuple[list[Plan], bool]
"""The plans that were simulated to the end, and whether the time limit ended the moves."""


@dataclass(slots=True)
class MovesAhead:
    """Moves from `following`, (seconds, plan), if any. It is a context manager, which begins and ends the process."""

    incumbent: Incumbent
    descend: Descend
    following: tuple[Seconds, Plan] | None
    _best: Plan | None = field(default=None, init=False)
    _open: ExitStack = field(default_factory=ExitStack, init=False)
    _second: SecondProcess[Moved] | None = field(default=None, init=False)

    def __enter__(self) -> MovesAhead:
        incumbent, context = self.incumbent, self.incumbent.context
        left, is_small = incumbent.limit.seconds_left - AHEAD_S, incumbent.request.topology.fleet.devices < BESIDE_FROM
        self._best = incumbent.best
        if self.following is None or self._best is None or is_small or context.every_step or context.punctual:
            return self
        if left > 0 and has_free_core():
            limited = replace(incumbent.request, time_limit=left)
            call = partial(_in_process, context, limited, self._best, incumbent.budgets, self.descend, self.following)
            self._second = self._open.enter_context(SecondProcess(call))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._open.close()

    def collect(self) -> bool:
        """Keep the fastest of the plans that were found, as the incumbent would; return whether these moves are done."""
        incumbent, request = self.incumbent, self.incumbent.request
        if self._second is None or incumbent.best is not self._best:
            return False
        has_ended = self._second.ends(incumbent.limit.seconds_left, lambda: incumbent.report("moving layers between stages"))
        answer = self._second.answer() if has_ended else None
        if answer is None:
            return False
        plans, cut_off = answer
        incumbent.limit.reached |= cut_off
        for plan in plans:
            incumbent.keep(replace(plan, topology=request.topology, workload=request.workload))
        return True


def _in_process(
    known: PlanningContext,
    request: Request,
    best: Plan,
    budgets: Budgets,
    descend: Descend,
    following: tuple[Seconds, Plan],
) -> Moved:
    """The plans that moves find below the step of the best plan, with the costs that a context knows."""
    context, (seconds, start) = known.of(request), following
    descend(Incumbent(request, context, budgets, context.limit, best), start, seconds)
    return context.simulated, context.limit.reached
