"""Plans with mixed stages of a model whose layers differ: a search of all placements, and a bound on their plans.

Placements are bounded (`planner.search.unlike_placements`) in the order of their total work, as far as that is below the step
of the fastest plan; the best cut of each is built and, if it may be faster, simulated. The search begins with the first plan of
the search of whole stages, and knows of no later one. So its result is the same in a second process beside that search, where
this machine has a core for it, as before it."""

from __future__ import annotations

import heapq
import math
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType

from planner.bounds.mixed_deadline import MixedBound
from planner.bounds.unlike_work import UnlikeWork
from planner.costs.context import PlanningContext
from planner.costs.unlike_layers import UnlikeCosts
from planner.placement.ranks import with_collectives
from planner.placement.simulation import step
from planner.request import Request
from planner.search.fastest_plan import FastestPlan
from planner.search.unlike_placements import Placement, PlacementBounds, placements
from planner.second_process import AHEAD_S, BESIDE_FROM, SecondProcess, has_free_core
from planner.time_limit import TimeLimit
from sim.errors import Infeasible, NoRoute, NotDefined, NotModelled
from sim.plan.plan import Plan
from sim.units import Seconds

BUILT = 60
"""Most plans that are built (a guess), those of the placements with the least bounds by total work."""
SHARE = 0.5
"""Share of the time limit for this search where it comes before that of whole stages (a guess)."""
ACTIVITY = "bounding plans with mixed stages"
"""What the search says that it does meanwhile."""


@dataclass(frozen=True, slots=True)
class Proved:
    """The bound of plans with mixed stages, infinite where there are none; the fastest plan, if any; and whether the time limit
    ended the search."""

    bound: MixedBound
    best: Plan | None
    cut_off: bool


@dataclass(slots=True)
class MixedSearch(FastestPlan):
    """The search of the plans with mixed stages. built: the number of plans that were built."""

    built: int = 0

    def run(self, costs: UnlikeCosts, work: UnlikeWork) -> Proved:
        """Search until no placement is left that may have a plan worth finding."""
        bounds, least = PlacementBounds(costs), MixedBound(math.inf)
        queue = [(bound, number, one) for number, (bound, one) in enumerate(placements(self.request, work))]
        heapq.heapify(queue)
        while queue and queue[0][0] < self.cutoff and not self.limit.is_up():
            bound, _, one = heapq.heappop(queue)
            bound = self._bound(bounds, one, bound)
            if bound < least.seconds:
                least = MixedBound(bound, ((one.shape, one.placed),))
        if queue and queue[0][0] < least.seconds:
            left = queue[0][2]
            least = MixedBound(queue[0][0], ((left.shape, left.placed),))
        return Proved(least, self.best, self.limit.reached)

    def _bound(self, bounds: PlacementBounds, one: Placement, low: Seconds) -> Seconds:
        """A lower bound on the plans of a placement, at least `low`; the plan of its best cut is kept if it is faster."""
        cut = bounds.of(one, low, self.cutoff)
        if cut.variant is not None and self.built < BUILT:
            self.built += 1
            with suppress(Infeasible, NoRoute, NotDefined, NotModelled):
                plan = bounds.plan(one, cut, self.request)
                self.keep(with_collectives(plan))
                self.keep(plan)
        return cut.seconds


@dataclass(slots=True)
class UnlikeMixedProof:
    """The search of mixed stages of a request, beside another one. It is a context manager, which ends its process."""

    costs: UnlikeCosts
    work: UnlikeWork
    _found: Proved | None = None
    _open: ExitStack = field(default_factory=ExitStack)
    _second: SecondProcess[Proved] | None = None

    def __enter__(self) -> UnlikeMixedProof:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._open.close()

    def begin(self, search: FastestPlan) -> None:
        """Begin below the step of the best plan, if there is one: in a second process where that is of use, else at once."""
        if search.best is None:
            return
        request, left = search.request, search.limit.seconds_left
        is_small = request.topology.fleet.devices < BESIDE_FROM
        if not is_small and left > AHEAD_S and has_free_core() and any(len(one) > 1 for one in request.joinable()):
            call = partial(_in_process, replace(request, time_limit=left - AHEAD_S), search.best)
            self._second = self._open.enter_context(SecondProcess(call))
        else:
            self._found = self._here(search, SHARE)

    def collect(self, search: FastestPlan) -> MixedBound | None:
        """The bound; a faster plan becomes the best one of the search. None where no bound is known when the time is up."""
        found = self._found or self._answer(search)
        if found is None and search.best is not None and search.limit.is_up():
            return None
        found = found or self._here(search, 1.0)
        search.limit.reached |= found.cut_off
        if found.best is not None and (search.best is None or step(found.best) < step(search.best)):
            search.best = found.best
        return found.bound

    def _here(self, search: FastestPlan, share: float) -> Proved:
        """The search in this process, for a share of the time that is left."""
        limit = TimeLimit(share * search.limit.seconds_left)
        return MixedSearch(search.request, search.context, search.best, limit).run(self.costs, self.work)

    def _answer(self, search: FastestPlan) -> Proved | None:
        """What the second process found, if there is one; None where it failed or has not ended in time."""
        if self._second is None:
            return None
        search.context.progress(ACTIVITY)
        found = self._second.answer() if self._second.ends(search.limit.seconds_left) else None
        if found is None or found.best is None:
            return found
        request = search.request
        return replace(found, best=replace(found.best, topology=request.topology, workload=request.workload))


def _in_process(request: Request, first: Plan | None) -> Proved:
    """The search in a process of its own."""
    context = PlanningContext(request)
    costs = UnlikeCosts(context)
    return MixedSearch(request, context, first, context.limit).run(costs, UnlikeWork(context, costs.layers))
