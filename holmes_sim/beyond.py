"""How much faster plans are that few or no training frameworks run: a short search without a launch target."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType

from holmes_sim import exporters
from holmes_sim.torch_backend import supported
from planner import api
from planner.costs.context import PlanningContext
from planner.limits import NO_LIMITS
from planner.placement.simulation import step
from planner.request import Request
from planner.search.budgets import Budgets
from planner.second_process import SecondProcess, has_free_core
from planner.strategies import certified
from planner.target import ANY
from sim.errors import HolmesError, NotSupported
from sim.plan.plan import Plan
from sim.units import Seconds, time_text

LONGEST_S: Seconds = 30.0
"""Time limit of the search, and of the wait for it, as a safeguard (a guess): its work is counted, 0.3 to 3 CPU seconds for up
to 128 devices. With 10 s a slow machine found another plan of `mixed-age`."""
SEARCHED = "plans that few or no frameworks run"
LEAST_GAIN = 0.01
"""Least saving of a step that is told (a guess)."""
QUICKLY = Budgets(
    draft_shapes=0, other_variants=4, first_estimates=2, first_evaluated=16, first_improved=3, first_tries=2,
    first_unlike_tries=1, alone_tries=1, mixed_tries=2,
)  # fmt: skip
"""Budgets of the search, most of them half of the usual ones or less (a guess), without a draft, whose simulation took half of
its time on `hethub-768`: on 23 fleets with the plans of the usual ones."""
BACKEND = "holmes-sim run"
"""The command that runs plans with the torch backend."""


@dataclass(frozen=True, slots=True)
class Beyond:
    """A simulated plan that is faster than the one for a framework. `able`: the frameworks that run it, and `BACKEND`. `alike`:
    both have the same schedule."""

    plan: Plan
    saved: float
    able: tuple[str, ...]
    alike: bool = False

    @property
    def step(self) -> Seconds:
        """Its simulated step."""
        return step(self.plan)

    @property
    def _target(self) -> str:
        """What `--for` needs to find the plan: the first framework that runs it, else `none`."""
        return next((name for name in self.able if name != BACKEND), "none")

    def __str__(self) -> str:
        config = self.plan.config
        tied = " with the tied embedding summed by shards" if config.tied_shards else ""
        what = f"another plan of schedule {config.schedule}" if self.alike else config.schedule
        named = " and ".join(f"`{name}`" if " " in name else name for name in self.able)
        runs = f"it runs with {named}" if named else "nothing runs it yet"
        return (
            f"Faster, but few or no frameworks run it: {what}{tied} takes at most {time_text(self.step)}, "
            f"{self.saved:.0%} less time; {runs}. `--for {self._target}` searches such plans."
        )


@dataclass(slots=True)
class BeyondSearch:
    """The search for a plan that need not run on a framework, beside the search of a request; without a proof.

    It runs in a second process from the begin of the search on, where this machine has a core for it; else when it is asked,
    with the costs that are known by then. It is a context manager, which ends the process. `wanted`: whether anything is
    searched; never for another target than `ANY`."""

    request: Request
    wanted: bool
    _open: ExitStack = field(default_factory=ExitStack, init=False)
    _second: SecondProcess[Plan | None] | None = field(default=None, init=False)

    def __enter__(self) -> BeyondSearch:
        self.wanted = self.wanted and self.request.target is not None and self.request.target.name == ANY
        if self.wanted and has_free_core():
            free = self._free(min(self.request.time_limit, LONGEST_S))
            call = partial(_fastest, PlanningContext(free), free)
            self._second = self._open.enter_context(SecondProcess(call, True))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._open.close()

    def has_ended(self) -> bool:
        """Whether nothing is searched in a second process any more."""
        return self._second is None or self._second.ends(0.0)

    def least_step(self, found: Plan) -> Seconds:
        """The step of the plan that was found in the second process, which has ended, where it saves enough of the step of
        `found` and something runs it; else infinite."""
        other = self._second.answer() if self._second is not None else None
        is_faster = other is not None and 1 - step(other) / step(found) >= LEAST_GAIN and bool(_able(other))
        return step(other) if other is not None and is_faster else math.inf

    def compared(self, found: Plan, seconds: Seconds, context: PlanningContext) -> Beyond | None:
        """What the plan that was found saves of the step of `found`; waits or searches for at most `seconds` (and `LONGEST_S`).
        context: that of the search for `found`.

        None where nothing is wanted or faster, or the time is up."""
        other: Plan | None = None
        if self._second is not None:
            context.progress(SEARCHED)
            other = self._second.answer() if self._second.ends(max(min(seconds, LONGEST_S), 0.0)) else None
        elif self.wanted and seconds > 0:
            free = self._free(min(seconds, LONGEST_S))
            other = _fastest(context, free, lambda text: context.progress(f"{SEARCHED}: {text}"))
        if other is None:
            return None
        saved = 1 - step(other) / step(found)
        alike = other.config.schedule == found.config.schedule
        return Beyond(other, saved, _able(other), alike) if saved >= LEAST_GAIN else None

    def _free(self, seconds: Seconds) -> Request:
        """The request without a launch target."""
        return replace(self.request, target=None, time_limit=seconds)


def _fastest(known: PlanningContext, request: Request, progress: Callable[[str], None] = lambda text: None) -> Plan | None:
    """The plan of a search without a proof, with the costs that a context knows; None where there is none."""
    context = known.of(request)
    context.progress, context.punctual = progress, True
    context.proves = context.restarts = False  # half the time on more than three node classes, for the same plans so far
    is_plain = request.limits == NO_LIMITS and request.workload.model.is_uniform
    try:
        return certified.plan(request, context, QUICKLY) if is_plain else api.plan(request, context=context)
    except HolmesError:
        return None


def _able(plan: Plan) -> tuple[str, ...]:
    """What runs a plan: the frameworks that can, then the torch backend."""
    able = exporters.able(plan)
    try:
        supported.check(plan)
    except NotSupported:
        return able
    return (*able, BACKEND)
