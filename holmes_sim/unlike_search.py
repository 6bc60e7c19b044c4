"""The search for unlike pipelines beside that of a plan of alike replicas: in a second process while the latter is proved.

Its deadline is the step of the first plan of alike replicas, and that of the plan that few or no frameworks run, where that is
faster; so what it finds does not depend on when it begins. What it found is told if it is faster than the plans that are known
in the end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType

from holmes_sim import unlike_replicas
from holmes_sim.beyond import Beyond, BeyondSearch
from holmes_sim.unlike_replicas import LEAST_GAIN, UnlikeReplicas
from planner.placement.simulation import step
from planner.request import Request
from planner.second_process import SecondProcess, has_free_core
from sim.plan.plan import Plan
from sim.units import Seconds

AHEAD_S: Seconds = 3.0
"""Seconds after its time limit in which a search beside the plan may hand over its answer (a guess)."""


@dataclass(slots=True)
class UnlikeSearch:
    """The search for unlike pipelines of a request. It is a context manager, which ends its process.

    It begins in a second process, where this machine has a core for it, once the first plan (`first_plan`) and the answer of
    `beyond` are known; `poll` looks whether they are. Else it runs when it is asked (`compared`)."""

    request: Request
    wanted: bool
    beyond: BeyondSearch
    begun: float = field(default_factory=time.perf_counter)
    _first: Plan | None = None
    _is_beside: bool = False
    _open: ExitStack = field(default_factory=ExitStack)
    _second: SecondProcess[UnlikeReplicas | None] | None = None
    _limit: tuple[float, Seconds] = (0.0, 0.0)  # when the process began, and its time limit

    def __enter__(self) -> UnlikeSearch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._open.close()

    def first_plan(self, plan: Plan) -> Seconds:
        """Begin the search once the first plan of alike replicas is known; return the seconds of the time limit that it needs
        after their search: none beside it."""
        self._first = plan
        self._is_beside = self.wanted and unlike_replicas.is_wanted(self.request) and has_free_core()
        self.poll()
        return self.spared(plan)

    def spared(self, plan: Plan) -> Seconds:
        """Seconds of the time limit that the search needs after the plan."""
        return 0.0 if self._is_beside or not self.wanted else unlike_replicas.spared(self.request, plan)

    def poll(self) -> None:
        """Begin the search beside that of the plan, if it is to and can begin now."""
        if not self._is_beside or self._second is not None or self._first is None or not self.beyond.has_ended():
            return
        seconds = self.request.time_limit - (time.perf_counter() - self.begun) - AHEAD_S
        self._limit = time.perf_counter(), seconds
        facts = self.request, self._first, seconds
        call = partial(unlike_replicas.searched, *facts, fastest_s=self.beyond.least_step(self._first))
        self._second = self._open.enter_context(SecondProcess(call, True))

    def polled(self, progress: Callable[[str], None]) -> Callable[[str], None]:
        """A receiver of status lines which also looks whether the search can begin."""

        def report(text: str) -> None:
            self.poll()
            progress(text)

        return report

    def compared(
        self, found: Plan, faster: Beyond | None, left: Seconds, progress: Callable[[str], None]
    ) -> UnlikeReplicas | None:
        """What is known of unlike pipelines beside the plan that was found in the end, and `faster`, which few or no frameworks
        run; waits or searches for at most the seconds that are `left`."""
        self.poll()
        fastest_s = faster.step if faster is not None and faster.able else math.inf
        if self._second is not None:
            progress("unlike pipelines")
            begun, seconds = self._limit
            has_ended = self._second.ends(max(min(begun + seconds + AHEAD_S - time.perf_counter(), left), 0.0))
            known = self._second.answer() if has_ended else None
            limit = 1e-3  # for the bound alone
        else:
            known, limit = None, left
        if known is None and self.wanted and left > 0:
            known = unlike_replicas.searched(self.request, self._first or found, limit, progress, fastest_s)
        return against(known, found, fastest_s) if known is not None else None


def against(known: UnlikeReplicas, alike: Plan, fastest_s: Seconds) -> UnlikeReplicas:
    """What is known beside a plan of alike replicas: without the plan of unlike pipelines, unless it saves enough of that one's
    step and of `fastest_s`."""
    proved = alike.certificate.all_lower_bound_s if alike.certificate is not None else 0.0
    known = replace(known, alike_s=step(alike), alike_bound_s=proved)
    if known.plan is None or known.step > min(known.alike_s, fastest_s) * (1 - LEAST_GAIN):
        return replace(known, plan=None)
    return known
