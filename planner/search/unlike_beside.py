"""The bound of plans with unlike degrees, beside the simulations that raise the bound of whole stages.

Those simulations run on one core. So where they are to come, and this machine has a core for it, a second process proves the
bound of plans with unlike degrees (`planner.search.unlike_degrees_proof`) meanwhile. If they find a faster plan, and the bound
is too low for it, the proof is done again below its step; so the result is the same with and without a second process."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType

from planner.costs.context import PlanningContext
from planner.request import Request
from planner.search.budgets import Budgets
from planner.search.incumbent import Incumbent
from planner.search.unlike_degrees_proof import prove_unlike
from planner.second_process import AHEAD_S, BESIDE_FROM, SecondProcess, has_free_core
from planner.space.shape import Shape
from planner.space.unlike_degrees import may_differ
from sim.plan.plan import Plan
from sim.units import Seconds

ACTIVITY = "bounding stages of unlike degrees"
"""What the search says that it does while it waits."""


@dataclass(slots=True)
class UnlikeBeside:
    """The proof for the shapes of a request. It is a context manager, which ends its process."""

    context: PlanningContext
    bases: Sequence[Shape]
    _target: Seconds = 0.0
    _open: ExitStack = field(default_factory=ExitStack)
    _second: SecondProcess[tuple[Seconds | None, bool]] | None = None

    def __enter__(self) -> UnlikeBeside:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._open.close()

    def begin(self, incumbent: Incumbent) -> None:
        """Begin the proof below the step that is searched for, where a second process is of use: where simulations are to raise
        the bound of whole stages next, because it is not closed."""
        context, request, left = self.context, incumbent.request, incumbent.limit.seconds_left - AHEAD_S
        is_small, is_closed = request.topology.fleet.devices < BESIDE_FROM, incumbent.lower_bound >= incumbent.target
        if incumbent.best is None or is_closed or is_small or context.every_step or context.punctual:
            return
        if left > 0 and may_differ(request) and has_free_core():
            self._target, limited = incumbent.target, replace(request, time_limit=left)
            call = partial(_in_process, context, limited, incumbent.best, incumbent.budgets, self.bases)
            self._second = self._open.enter_context(SecondProcess(call))

    def collect(self, incumbent: Incumbent) -> Seconds | None:
        """As `prove_unlike`, from the second process where that has begun."""
        bound: Seconds | None = None
        if self._second is not None:
            has_ended = self._second.ends(incumbent.limit.seconds_left, lambda: incumbent.report(ACTIVITY))
            bound, cut_off = (self._second.answer() if has_ended else None) or (None, False)
            incumbent.limit.reached |= cut_off
        if bound is None or bound < incumbent.target < self._target:
            return prove_unlike(incumbent, self.bases)
        return min(bound, incumbent.target)


def _in_process(
    known: PlanningContext, request: Request, best: Plan, budgets: Budgets, bases: Sequence[Shape]
) -> tuple[Seconds | None, bool]:
    """The bound below the step of a plan, with the costs that a context knows, and whether the time limit ended the proof."""
    context = known.of(request)
    return prove_unlike(Incumbent(request, context, budgets, context.limit, best), bases), context.limit.reached
