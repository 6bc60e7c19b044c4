"""The search of all plans with short chunks (`planner.search.short_chunks`), beside the proof.

It follows the proof where the best plan has their degree of context parallelism, and takes longer than the proof on large
fleets. So where such plans were tried before all others, because they promise far more, and one is the first plan, a second
process searches them while the other plans are searched, if this machine has a core for it. If a faster plan is found before it
is asked, what it found is dropped, and they are searched below that plan's step, if it has the degree; so the result is the
same with and without a second process."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType

from planner.costs.context import PlanningContext
from planner.placement.simulation import step
from planner.request import Request
from planner.search.budgets import Budgets
from planner.search.incumbent import Incumbent
from planner.search.short_chunks import ShortChunks, with_all_searched
from planner.second_process import AHEAD_S, BESIDE_FROM, SecondProcess, has_free_core
from planner.space.sequences_and_experts import short_degree
from sim.plan.plan import Plan

Found = tuple[Plan | None, list[Plan], bool]
"""A faster plan, if there is one, all plans that were simulated, and whether the time limit ended the search."""


@dataclass(slots=True)
class ShortChunksBeside:
    """The search for an incumbent. It is a context manager, which ends its process."""

    context: PlanningContext
    _best: Plan | None = None
    _open: ExitStack = field(default_factory=ExitStack)
    _second: SecondProcess[Found] | None = None

    def __enter__(self) -> ShortChunksBeside:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._open.close()

    def begin(self, incumbent: Incumbent) -> None:
        """Begin, where the first plan has the degree that is tried and a second process is of use."""
        context, request, best = self.context, incumbent.request, incumbent.best
        cp, left = short_degree(request), incumbent.limit.seconds_left - AHEAD_S
        is_small = request.topology.fleet.devices < BESIDE_FROM
        if best is None or best.config.cp != cp or is_small or context.every_step or left <= 0:
            return
        if has_free_core():
            self._best = best
            call = partial(_in_process, context, replace(request, time_limit=left), best, incumbent.budgets, cp)
            self._second = self._open.enter_context(SecondProcess(call))

    def settle(self, incumbent: Incumbent, short: ShortChunks) -> None:
        """As `ShortChunks.settle`, from the second process where that has begun and the best plan is the same."""
        found: Found | None = None
        if self._second is not None and incumbent.best is self._best and not incumbent.limit.is_up():
            cp = short_degree(incumbent.request)
            if self._second.ends(incumbent.limit.seconds_left, lambda: incumbent.report(f"searching cp {cp}")):
                found = self._second.answer()
            elif incumbent.limit.is_up():
                return
        if found is None:
            short.settle()
            return
        best, simulated, cut_off = found
        incumbent.limit.reached |= cut_off
        incumbent.context.simulated += [_of(incumbent.request, plan) for plan in simulated]
        if best is not None:
            incumbent.keep(_of(incumbent.request, best))


def _in_process(known: PlanningContext, request: Request, best: Plan, budgets: Budgets, cp: int) -> Found:
    """What is found of all plans with a degree, with the costs that a context knows."""
    context = known.of(request)
    inner = with_all_searched(Incumbent(request, context, budgets, context.limit, best), cp)
    is_faster = inner.best is not None and inner.best is not best and inner.cutoff < step(best) * (1 - budgets.target_gap)
    simulated = [plan for plan in inner.context.simulated if plan is not inner.best]
    return inner.best if is_faster else None, simulated, context.limit.reached


def _of(request: Request, plan: Plan) -> Plan:
    """A plan of another process, whose topology and workload are its own, for the objects of this request."""
    return replace(plan, topology=request.topology, workload=request.workload)
