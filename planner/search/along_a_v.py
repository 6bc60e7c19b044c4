"""Plans of a pinned schedule with pairs of passes, whose ranks hold two stages along a V, and their certificate.

The bounds of other plans take the embedding to be on the first rank and the head on the last one, so these plans have a search
of their own. A layout is a shape and a number of pipeline ranks. Its first bound is its work on the fastest ranks. Layouts are
searched in the order of these bounds, until the least one left is not below the best step. Of a layout, each sequence of
clusters is placed once (`planner.search.placed_v`); the splits of its layers that may be faster than the best plan
(`planner.bounds.two_stage_ranks`) are all evaluated, and those that fit memory, and that the request allows, count. Invariant:
a split that is left out takes no less than the best plan, or than the bound of its sequence. Bounds hold on an idle network."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from planner.bounds.two_stage_ranks import LEAST, sequences
from planner.costs.context import PlanningContext
from planner.costs.node_classes import holds, most_stages
from planner.placement.simulation import step
from planner.request import Request
from planner.search.along_a_v_space import along, axes, left_out, without
from planner.search.budgets import Budgets
from planner.search.placed_v import PlacedV, TargetRefuses
from planner.space import lengths
from planner.space.shape import Shape
from planner.space.shapes import searched
from sim.analytic.stage_amounts import extends
from sim.errors import Infeasible, NoRoute, NotDefined, NotModelled
from sim.field_changes import changed
from sim.plan import schedules
from sim.plan.certificate import Certificate
from sim.plan.parallel_config import BLOCK
from sim.plan.plan import MadeBy, Plan
from sim.units import Seconds

NAME = "dualpipev"
"""The schedule that is searched beside others."""
SHARE = 0.2
"""Fraction of the time limit that is left for it (a guess)."""
MOST_SEQUENCES = 60
"""Sequences of clusters of one layout that are placed (a guess); of more, the bound of their work is kept."""
FIRST = 16
"""Layouts of which balanced plans are simulated before the proof begins (a guess)."""


def is_asked(request: Request) -> bool:
    """Whether the request pins a schedule with pairs of passes."""
    return request.wishes.schedule is not None and schedules.is_paired(request.wishes.schedule)


def plan(request: Request, context: PlanningContext) -> Plan:
    """The fastest plan found, simulated, with its certificate. Raises Infeasible where none is found."""
    check(request)
    search = Search(request, context)
    try:
        bound = search.run()
    except KeyboardInterrupt:  # return the best plan so far, with the bound of all work
        if search.best is None:
            raise
        context.interrupted, bound = True, search.layouts[0].bound
    if search.best is None and search.refusal:
        raise Infeasible(search.refusal)
    if search.best is None:
        raise Infeasible(
            f"no plan of schedule {request.wishes.schedule} was found: it needs two layers and two microbatches for each of "
            "two or more pipeline ranks, room in memory, and what the target and the request ask for"
        )
    best, objective = search.best, step(search.best)
    gap = max(1 - bound / objective, 0.0)
    certificate = Certificate(
        status="optimal" if gap <= Budgets().optimal_gap else "feasible",
        objective_s=objective,
        lower_bound_s=min(bound, objective),
        gap=gap,
        solver="closed form",
        time_limit_reached=context.limit.reached,
        whole_lower_bound_s=bound if math.isfinite(bound) else None,
        space=axes(request, [one.shape for one in search.layouts]),
        outside=left_out(request),
    )
    return best.annotated(certificate=certificate, made_by=MadeBy("certified", best.made_by.version))


def may_be_beside(request: Request) -> bool:
    """Whether such plans are searched beside those of a request that pins no schedule, where models and pins allow it: if the
    required schedules list it; for targets that overlap the exchanges of pairs, where experts are over ranks."""
    wishes, model, listed = request.wishes, request.workload.model, NAME in request.limits.listed("schedule")
    takes = request.target is not None and request.target.overlaps_pairs and model.experts > 0 and wishes.ep != 1
    if wishes.schedule is not None or not (listed or takes) or not request.limits.allows("schedule", NAME):
        return False
    try:
        check(_pinned(request))
    except Infeasible:
        return False
    return True


def _pinned(request: Request) -> Request:
    return replace(request, wishes=replace(request.wishes, schedule=NAME))


def reserved(request: Request) -> Seconds:
    """Seconds of the time limit that the search of other plans leaves for these."""
    return SHARE * request.time_limit if may_be_beside(request) and math.isfinite(request.time_limit) else 0.0


def beside(request: Request, context: PlanningContext, best: Plan) -> Plan:
    """The faster one of a plan with its certificate and of plans along a V, with a certificate for both spaces."""
    known, objective = best.certificate, step(best)
    assert known is not None
    try:
        search = Search(_pinned(request), context)
    except Infeasible:
        return best
    search.best = best
    bound = search.run()
    faster, objective = search.best is not best, step(search.best)
    least = min(known.lower_bound_s, bound, objective)
    gap, whole = max(1 - least / objective, 0.0), min(known.space_lower_bound_s, bound)
    certificate = replace(
        known,
        status="optimal" if gap <= Budgets().optimal_gap and (faster or known.status == "optimal") else "feasible",
        objective_s=objective,
        lower_bound_s=least,
        gap=gap,
        time_limit_reached=context.limit.reached,
        whole_lower_bound_s=min(known.whole_lower_bound_s, whole) if known.whole_lower_bound_s is not None else whole,
        beside_space=known.beside_space and not faster,
        space=(*known.space, along(NAME)),
        outside=without(known.outside, NAME),
    )
    return search.best.annotated(certificate=certificate, made_by=MadeBy("certified", best.made_by.version))


def check(request: Request) -> None:
    """Raise Infeasible for models and pins with which the schedule is not planned."""
    named, model, wishes = f"schedule {request.wishes.schedule}", request.workload.model, request.wishes
    if not model.is_uniform:
        raise Infeasible(f"{named} is planned for models of equal layers, not for {model.name}")
    if model.tied_embeddings:
        raise Infeasible(f"{named} is not modelled with a tied embedding, which {model.name} has")
    is_planned = (wishes.zero_stage or 0) <= 1 and wishes.vpp in (None, 2) and wishes.recompute != BLOCK
    if not is_planned or wishes.offloaded:
        raise Infeasible(
            f"{named} is planned with vpp 2, ZeRO 0 or 1, equal recomputation and nothing on hosts, not with {wishes}"
        )


@dataclass(frozen=True, slots=True)
class Layout:
    """A shape with a number of pipeline ranks; `bound`: seconds that no plan of it is below."""

    bound: Seconds
    shape: Shape
    pp: int


class Search:
    """The search of one request: all layouts by their bounds, the best plan so far, and why the target refuses layouts."""

    def __init__(self, request: Request, context: PlanningContext):
        self.request, self.context, self.refusal = request, context, ""
        self.best: Plan | None = None
        self.layouts = sorted(self._layouts(), key=lambda one: one.bound)

    def run(self) -> Seconds:
        """Search; returns a lower bound on the step of every plan of the space."""
        self.context.progress("plans along a V")
        for layout in self._first():
            for placed in itertools.islice(self.placed(layout), len(self._overlaps(layout.shape))):
                for candidate in placed.balanced():
                    self._keep(candidate)
        left, settled = [(one.bound, index, one) for index, one in enumerate(self.layouts)], math.inf
        heapq.heapify(left)
        while left and (self.best is None or left[0][0] < min(self.target, settled)) and not self.context.limit.is_up():
            settled = min(settled, self._searched(heapq.heappop(left)[2]))
        return min(settled, left[0][0] if left else math.inf)

    @property
    def target(self) -> Seconds:
        """A bound of so many seconds is enough."""
        return math.inf if self.best is None else step(self.best) * (1 - Budgets().optimal_gap)

    def _first(self) -> Iterator[Layout]:
        """The layout with the least bound of each of some shapes, until the time is up and a plan is known."""
        seen: dict[Shape, Layout] = {}
        for one in self.layouts:
            seen.setdefault(one.shape, one)
        for number, layout in enumerate(seen.values()):
            if self.best is not None and (number >= FIRST or self.context.limit.is_up()):
                return
            yield layout

    def _layouts(self) -> Iterator[Layout]:
        """Layouts with enough slots, layers and microbatches."""
        free = replace(self.request, target=None, wishes=replace(self.request.wishes, vpp=2))
        layers = self.request.workload.model.layers
        for shape in searched(free, across=True, unequal=False):
            if shape.zero_stage > 1 or not shape.divides(self.request.workload):
                continue
            rates = sorted((1 / seconds for seconds, room in self._rates(shape) for _ in range(room)), reverse=True)
            m = shape.microbatches(self.request.workload)
            for pp in range(2, min(len(rates), layers // LEAST, m // 2) + 1):
                if lengths.allows(self.request, shape, pp):
                    yield Layout(m * layers / sum(rates[:pp]), shape, pp)

    def _rates(self, shape: Shape) -> Iterator[tuple[Seconds, int]]:
        """(least seconds of a layer and microbatch, most ranks) on each cluster; exchanges of tokens do not count."""
        workload, layers = self.request.workload, self.request.workload.model.layers
        config = changed(shape.config(workload, 2), vpp=1)
        for cluster in self.request.clusters():
            if not holds(self.request, cluster, shape):
                continue
            places = [replace(at, config=config) for at in self.context.cluster_costs.stages(cluster, shape)]
            linear = all(extends(at.workload, at.config, at.collectives.specs) for at in places)
            sizes = (1, layers) if linear else range(1, layers + 1)
            each = min(sum(at.passes(k, False, False)) / k for at in places for k in sizes)
            yield each, most_stages(self.request, cluster, shape)

    def placed(self, layout: Layout) -> Iterator[PlacedV]:
        """Every sequence of clusters of a layout that can be placed, under each order of its gathers and reductions."""
        held = (cluster for cluster in self.request.clusters() if holds(self.request, cluster, layout.shape))
        rooms = [(cluster.name, most_stages(self.request, cluster, layout.shape)) for cluster in held]
        for clusters in sequences(rooms, layout.pp):
            for overlap in self._overlaps(layout.shape):
                try:
                    yield PlacedV(self.request, layout.shape, clusters, overlap)
                except TargetRefuses as error:
                    self.refusal = self.refusal or str(error)
                except (NoRoute, NotDefined, NotModelled):
                    continue

    def _overlaps(self, shape: Shape) -> tuple[tuple[bool, bool], ...]:
        """(overlap_grad_reduce, overlap_param_gather) that are searched: both off for targets only, some of which need it."""
        chosen = ((True, True), (True, False)) if shape.slots > 1 and shape.zero_stage == 1 else ((True, True),)
        return (*chosen, (False, False)) if self.request.target is not None else chosen

    def _searched(self, layout: Layout) -> Seconds:
        """A lower bound on the plans of a layout; keeps the fastest of them, if that is the best."""
        least = math.inf
        for number, placed in enumerate(self.placed(layout)):
            if number >= MOST_SEQUENCES or self.context.limit.is_up():
                return min(least, layout.bound)
            bound, candidate = placed.search(self.target, layout.bound)
            least = min(least, bound)
            if candidate is not None:
                self._keep(candidate)
        return least

    def _keep(self, candidate: Plan) -> None:
        """Simulate a plan, and keep it if it is the fastest."""
        limit = math.inf if self.best is None else step(self.best)
        simulated = self.context.timelines.simulate_up_to(candidate, limit)
        if isinstance(simulated, Plan) and step(simulated) < limit:
            self.best = simulated
