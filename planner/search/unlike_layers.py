"""Search of plans for a model whose layers differ, with a lower bound: best-first over the shapes of its stand-ins.

A stand-in is a model of equal layers (`planner.space.stand_in`); its shapes are the searched ones. One priority queue holds
shapes by their lower bounds with the model's own layers. The first item is replaced by what it consists of, with better bounds:
a shape (`planner.bounds.unlike_work`) by its variants, variants (`pipeline_bound`) by their numbers of ranks
(`planner.search.unlike_variants`), and these, where they are few, by their pipelines on an idle network (`unlike_exhaust`). The
pipelines with the least bounds are built with the model's own layers; those that fit are priced in closed form, and simulated
if that is below the fastest plan. Invariant: every plan of whole stages belongs to an item of the queue, or to one that is
settled, and takes at least its bound. So the least bound of both is a lower bound on all of them. Plans with mixed stages are
searched beside (`planner.search.unlike_mixed_proof`)."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from planner.bounds.mixed_deadline import MixedBound
from planner.bounds.peak_work import peak_seconds
from planner.bounds.unlike_deadline import might_finish
from planner.bounds.unlike_stages import Pipeline
from planner.bounds.unlike_work import UnlikeWork, pipeline_bound
from planner.costs.unlike_layers import UnlikeCosts
from planner.placement.ranks import build, with_collectives
from planner.placement.simulation import step
from planner.request import Request
from planner.search.fastest_plan import FastestPlan
from planner.search.unlike_exhaust import Ranks, are_few, listed, orders
from planner.search.unlike_mixed_proof import UnlikeMixedProof
from planner.search.unlike_placements import placements
from planner.search.unlike_shapes import Open, layout_of, of_each_schedule, open_shapes
from planner.search.unlike_variants import BUILT, Variants
from planner.space import stand_in
from planner.space.shape import Shape
from planner.space.shapes import uneven, zero_stages
from sim.errors import Infeasible, NoRoute, NotDefined, NotModelled, PlanError
from sim.plan.plan import Plan, Stage
from sim.units import Seconds

REFINED = 3_000
"""Most variants whose pipelines are bounded. Guess: more takes longer, and the least bounds come first."""
EXHAUSTED = 1_500
"""Most pipelines that are built because they hold the bound. Guess: more prove more, and take longer."""
FAILED = 8
"""Most pipelines of a layout, under all its ZeRO stages, that are built without being faster than the best plan (a guess)."""
FIRST = 6
"""Layouts of the fastest plans of the stand-ins that are tried first (a guess)."""
POLISHED = 60
"""Most simulations of neighbours of the best plan (a guess)."""


class _Length(NamedTuple):
    """The pipelines of a variant with one number of ranks."""

    part: Request
    shape: Shape
    pp: int


class _Order(NamedTuple):
    """The pipelines of a variant of which each rank has a given class."""

    part: Request
    shape: Shape
    ranks: Ranks


class _Built(NamedTuple):
    """A pipeline of a variant, of which the bound is known."""

    part: Request
    shape: Shape
    pipeline: Pipeline


Item: TypeAlias = Open | _Length | _Order | _Built


@dataclass(slots=True)
class UnlikeSearch(FastestPlan):
    """The search of one request, also of its plans with mixed stages.

    settled: the least bound of what is done; work: a bound on all plans, and mixed: on those with mixed stages, 0 until they
    are known; least_shape: the shape with the least bound."""

    settled: Seconds = math.inf
    work: Seconds = 0.0
    mixed: MixedBound = field(default_factory=lambda: MixedBound(0.0))
    least_shape: Shape | None = None
    _settled_shape: Shape | None = None
    _polished: Plan | None = None
    _costs: UnlikeCosts = field(init=False)
    _failed: Counter[tuple[object, ...]] = field(default_factory=Counter)
    _variants: Variants = field(init=False)
    exhausted: int = 0

    def __post_init__(self) -> None:
        FastestPlan.__post_init__(self)
        self._costs = UnlikeCosts(self.context)
        self._variants = Variants(self.context, self._costs)

    def run(self) -> Seconds:
        """Search until the gap is small, and return the lower bound on all plans without mixed stages."""
        work, bases = UnlikeWork(self.context, self._costs.layers), list(open_shapes(self.request))
        self._begin(bases)
        self.polish()
        least = peak_seconds(self.request)
        bounds = [least if self._is_over() else work.bound(one.shape) for one in bases]
        self.work = min([*bounds, self._least_mixed(work, least)], default=math.inf)
        self.mixed = MixedBound(self.work)
        queue: list[tuple[Seconds, int, Item]] = list(zip(bounds, itertools.count(), bases, strict=False))
        if self._is_over():
            self._search(queue)
        else:
            with UnlikeMixedProof(self._costs, work) as proof:
                proof.begin(self)
                self._search(queue)
                self.mixed = proof.collect(self) or self.mixed
        self.least_shape = self._settled_shape
        return self.settled

    def _is_over(self) -> bool:
        """Whether the time is up, and some plan is known."""
        return self.best is not None and self.limit.is_up()

    def _least_mixed(self, work: UnlikeWork, least: Seconds) -> Seconds:
        """A bound by total work on all plans with mixed stages: `least`, a lower bound, where the time is up before."""
        found = math.inf
        for bound, _ in placements(self.request, work):
            if self._is_over():
                return least
            found = min(found, bound)
        return found

    def _search(self, queue: list[tuple[Seconds, int, Item]]) -> None:
        """Settle all items of a queue, or their least bound; its entries are (bound, number, item)."""
        heapq.heapify(queue)
        numbers = itertools.count(len(queue))
        while queue and queue[0][0] < self.cutoff:
            if self._variants.refined >= REFINED or self._is_over():
                break
            bound, _, item = heapq.heappop(queue)
            for seconds, part in self._opened(bound, item):
                if isinstance(part, Shape):
                    self._settle(max(bound, seconds), part)
                else:
                    heapq.heappush(queue, (max(bound, seconds), next(numbers), part))
        if queue:
            self._settle(queue[0][0], queue[0][2].shape)

    def _opened(self, bound: Seconds, item: Item) -> Iterator[tuple[Seconds, Item | Shape]]:
        """What an item consists of, each with a lower bound in seconds; a shape where nothing more is told apart of it."""
        if isinstance(item, _Built):
            self.exhausted += 1
            yield self._try(*item) if self.exhausted <= EXHAUSTED else bound, item.shape
        elif isinstance(item, _Length):
            yield from self._of_length(item)
        elif isinstance(item, _Order):
            yield from self._of_order(item, bound)
        elif item.variants:
            for shape in item.variants:
                yield from self._of_variant(item.part, shape, bound)
        elif not self._might_finish(item):
            yield self.cutoff, item.shape
        else:
            for alike in of_each_schedule(item):
                classes = self._costs.classes(alike.shape)
                seconds = max(bound, pipeline_bound(self.request, alike.shape, classes)) if classes else math.inf
                if seconds < math.inf:
                    yield seconds, alike

    def _of_variant(self, part: Request, shape: Shape, bound: Seconds) -> Iterator[tuple[Seconds, Item | Shape]]:
        """The lengths of the pipelines of a variant. Those that may be fast are built and, if they are fast, simulated."""
        found = self._variants.refine(part, shape, bound, self.cutoff)
        for pipeline in found.tried:
            self._try_of_layout(part, shape, pipeline)
        for pp, seconds in found.lengths.items():
            yield seconds, _Length(part, shape, pp)
        if not found.lengths:
            yield found.bound, shape

    def _of_length(self, item: _Length) -> Iterator[tuple[Seconds, Item | Shape]]:
        """The orders of the classes of the pipelines of a length, where these are few."""
        if not orders(self._costs.classes(item.shape), item.pp):
            yield 0.0, item.shape
        for seconds, ranks in self._variants.orders(item.shape, item.pp, self.cutoff):
            yield seconds, _Order(item.part, item.shape, ranks)

    def _try_length(self, item: _Length) -> None:
        """Build the best pipelines of a length, where they are few."""
        if are_few(self._costs.classes(item.shape), item.shape, item.pp):
            for bound, order in self._of_length(item):
                if isinstance(order, _Order):
                    list(self._of_order(order, bound))

    def _of_order(self, item: _Order, bound: Seconds) -> Iterator[tuple[Seconds, Item | Shape]]:
        """The pipelines of an order where they are few, of which the best ones are built; else those near the bound."""
        part, shape, ranks = item
        within, splits = self._variants.splits(shape, ranks, bound, self.cutoff)
        yield within, shape
        every = listed(self.context, shape, self._costs.classes(shape), ranks, splits, within)
        for number, (seconds, pipeline) in enumerate(every):
            if seconds >= within:
                return
            known = self._try_of_layout(part, shape, pipeline) if number < BUILT else None
            yield (seconds, _Built(part, shape, pipeline)) if known is None else (known, shape)

    def _try_of_layout(self, part: Request, shape: Shape, pipeline: Pipeline) -> Seconds | None:
        """As `_try`; None where so many pipelines of the layout were built in vain, or the time is up, that it is not tried."""
        layout, before = layout_of(shape), self.best
        if self._failed[layout] >= FAILED or self._is_over():
            return None
        seconds = self._try(part, shape, pipeline)
        self._failed[layout] += self.best is before
        return seconds

    def polish(self) -> None:
        """Move one layer at a time between neighbouring stages of the best plan, as long as a simulated step is shorter.

        Only without virtual stages, whose sizes are the space's: else those of the latest best plan without them."""
        moved = FastestPlan(self.request, self.context, self.plain, self.limit)
        while (before := moved.best) is not None and before is not self._polished:
            for stages in _neighbours(before):
                if moved.simulated >= POLISHED or self.limit.is_up():
                    break
                with suppress(PlanError):
                    moved.keep(replace(before, stages=stages, prediction=None, certificate=None))
            if moved.best is before or moved.simulated >= POLISHED or self.limit.is_up():
                break
        self.plain = self._polished = moved.best
        if moved.best is not None and self.best is not None and step(moved.best) < step(self.best):
            self.best = moved.best

    def _settle(self, bound: Seconds, shape: Shape) -> None:
        if bound < self.settled:
            self.settled, self._settled_shape = bound, shape

    def _begin(self, bases: Sequence[Open]) -> None:
        """Try the pipelines of the shapes of the fastest plans of the stand-ins, so that a plan is known early."""
        simulated = [plan for context in self.context.stand_ins.values() for plan in context.simulated]
        found = dict.fromkeys(layout_of(plan.config) for plan in sorted(simulated, key=step))
        wanted = set(itertools.islice(found, FIRST))
        degrees = {facts[:-2] for facts in wanted}
        for one in (one for one in bases if layout_of(one.shape)[:-2] in degrees):
            for alike in of_each_schedule(one):
                for shape in alike.variants[:2] if layout_of(alike.shape) in wanted else ():
                    for _, item in self._of_variant(one.part, shape, 0.0) if not self._is_over() else ():
                        if isinstance(item, _Length) and not self._is_over():
                            self._try_length(item)

    def _might_finish(self, one: Open) -> bool:
        """Whether some pipeline of a shape might be worth finding."""
        zeros = zero_stages(one.part, one.shape)
        every = [self._costs.classes(replace(one.shape, zero_stage=zero)) for zero in zeros]
        return bool(every[0]) and might_finish(self.context, every, self.cutoff)

    def _try(self, part: Request, shape: Shape, pipeline: Pipeline) -> Seconds:
        """Build the plan of a pipeline with the model's own layers; simulate it if it may be faster than the best.

        Returns a lower bound on the plans of the pipeline, infinite where it has none."""
        cluster = self.request.topology.fleet.cluster(pipeline[0][0])
        both = (False, True) if len(pipeline) == 1 and uneven(cluster, shape, 1) else (False,)
        (name, last), further = pipeline[-1], self.request.workload.model.mtp_layers
        stages = (*pipeline[:-1], (name, last + further))
        least = math.inf
        for evenly in both:
            with suppress(Infeasible, NoRoute, NotDefined, NotModelled):
                plan = stand_in.of_model(build(part, shape, stages, "certified", evenly), self.request)
                least = min(least, self.keep(with_collectives(plan)))
                if self.request.refuses(with_collectives(plan)):
                    least = min(least, self.keep(plan))
        return least


def _neighbours(plan: Plan) -> Iterator[tuple[Stage, ...]]:
    """The stages with one layer moved over one border, from either side; the last one may become empty where it has the
    head."""
    stages = plan.stages
    for index, (a, b) in enumerate(itertools.pairwise(stages)):
        for cut in (a.past_last - 1, a.past_last + 1):
            further = index + 2 == len(stages) and plan.workload.model.mtp_layers > 0
            if a.first < cut < b.past_last or (further and cut == b.past_last):
                yield (*stages[:index], replace(a, past_last=cut), replace(b, first=cut), *stages[index + 2 :])
