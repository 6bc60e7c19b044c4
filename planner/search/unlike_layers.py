"""Search of plans for a model whose layers differ, with a lower bound: best-first over the shapes of its stand-ins.

A stand-in is a model of equal layers (`planner.space.stand_in`); its shapes are the searched ones. One priority queue holds
shapes by their lower bounds with the model's own layers. The first item is replaced by what it consists of, with better bounds:
a shape (`planner.bounds.unlike_work`) by its variants, a variant (`pipeline_bound`) by its pipelines (`unlike_stages`). The
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

from planner.bounds.mixed_deadline import MixedBound
from planner.bounds.unlike_deadline import deadline_bound, might_finish
from planner.bounds.unlike_lengths import bounds_by_length
from planner.bounds.unlike_stages import MOST_CLASSES, Pipeline, best_pipelines, single_stages
from planner.bounds.unlike_work import UnlikeWork, pipeline_bound
from planner.costs.unlike_layers import UnlikeCosts, UnlikeStages
from planner.placement.ranks import build, with_collectives
from planner.placement.simulation import step
from planner.request import Request
from planner.search.fastest_plan import FastestPlan
from planner.search.unlike_exhaust import exhausted
from planner.search.unlike_mixed_proof import UnlikeMixedProof
from planner.search.unlike_placements import placements
from planner.search.unlike_shapes import Open, layout_of, of_each_schedule, open_shapes
from planner.search.unlike_splits import splits
from planner.space import stand_in
from planner.space.shape import Shape
from planner.space.shapes import uneven, zero_stages
from sim.errors import Infeasible, NoRoute, NotDefined, NotModelled, PlanError
from sim.field_changes import changed
from sim.plan.plan import Plan, Stage
from sim.units import Seconds

REFINED = 600
"""Most variants whose pipelines are bounded. Guess: more takes longer, and the least bounds come first."""
EXHAUSTED = 1_500
"""Most pipelines that are built to prove that none of their length is faster. Guess: more prove more, and take longer."""
BUILT = 3
"""Most pipelines of a variant with virtual stages that are built (a guess). Larger: slower; the others have higher bounds."""
ORDERS_BUILT = 6
"""The same without virtual stages, where each order of three classes has a pipeline (a guess)."""
FAILED = 8
"""Most pipelines of a layout, under all its ZeRO stages, that are built without being faster than the best plan (a guess)."""
FIRST = 6
"""Layouts of the fastest plans of the stand-ins that are tried first (a guess)."""
POLISHED = 60
"""Most simulations of neighbours of the best plan (a guess)."""


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
    _known: dict[Shape, tuple[Seconds, dict[int, Seconds]]] = field(default_factory=dict)
    refined: int = 0
    exhausted: int = 0

    def __post_init__(self) -> None:
        FastestPlan.__post_init__(self)
        self._costs = UnlikeCosts(self.context)

    def run(self) -> Seconds:
        """Search until the gap is small, and return the lower bound on all plans without mixed stages."""
        work, bases = UnlikeWork(self.context, self._costs.layers), list(open_shapes(self.request))
        self._begin(bases)
        self.polish()
        bounds = [work.bound(one.shape) for one in bases]
        self.work = min([*bounds, *(bound for bound, _ in placements(self.request, work))], default=math.inf)
        self.mixed = MixedBound(self.work)
        with UnlikeMixedProof(self._costs, work) as proof:
            proof.begin(self)
            self._search([(bound, number, one) for number, (bound, one) in enumerate(zip(bounds, bases, strict=True))])
            self.mixed = proof.collect(self)
        self.least_shape = self._settled_shape
        return self.settled

    def _search(self, queue: list[tuple[Seconds, int, Open]]) -> None:
        """Settle all shapes of a queue, or their least bound; items are (bound, number, shapes)."""
        heapq.heapify(queue)
        numbers = itertools.count(len(queue))
        while queue and queue[0][0] < self.cutoff:
            if self.refined >= REFINED or (self.best is not None and self.limit.is_up()):
                break
            bound, _, one = heapq.heappop(queue)
            if one.variants:
                for shape in one.variants:
                    self._settle(max(bound, self._pipelines(one.part, shape, bound)), shape)
            elif not self._might_finish(one):
                self._settle(max(bound, self.cutoff), one.shape)
            else:
                for alike in of_each_schedule(one):
                    classes = self._costs.classes(alike.shape)
                    seconds = max(bound, pipeline_bound(self.request, alike.shape, classes)) if classes else math.inf
                    if seconds < math.inf:
                        heapq.heappush(queue, (seconds, next(numbers), alike))
        if queue:
            self._settle(queue[0][0], queue[0][2].shape)

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
                if layout_of(alike.shape) in wanted and (self.best is None or not self.limit.is_up()):
                    for shape in alike.variants[:2]:
                        self._pipelines(one.part, shape, 0.0)

    def _might_finish(self, one: Open) -> bool:
        """Whether some pipeline of a shape might be worth finding."""
        zeros = zero_stages(one.part, one.shape)
        every = [self._costs.classes(replace(one.shape, zero_stage=zero)) for zero in zeros]
        return bool(every[0]) and might_finish(self.context, every, self.cutoff)

    def _pipelines(self, part: Request, shape: Shape, bound: Seconds) -> Seconds:
        """A lower bound on the pipelines of a variant, the best of which are built and, if they are fast, simulated."""
        classes = self._costs.classes(shape)
        bound, lengths = self._bounded(shape, bound)
        if bound >= self.cutoff:
            return bound
        if shape.vpp > 1 or len(classes) > MOST_CLASSES:
            some, every, otherwise = splits(self.context, part, shape, classes)[:BUILT], lengths, bound
        else:
            found = [*single_stages(self.context, shape, classes), *best_pipelines(self.context, shape, classes, self.cutoff)]
            found.sort(key=lambda one: one.seconds)
            some = [each.pipeline for each in found if each.seconds < self.cutoff][:ORDERS_BUILT]
            own = {len(each.pipeline): each.seconds for each in reversed(found)}
            every, otherwise = {pp: max(seconds, lengths.get(pp, 0.0)) for pp, seconds in own.items()}, math.inf
        layout = layout_of(shape)
        for pipeline in some if self._failed[layout] < FAILED else ():
            before = self.best
            self._try(part, shape, pipeline)
            self._failed[layout] += self.best is before
        return max(bound, min(self._exhausted(part, shape, classes, every).values(), default=otherwise))

    def _bounded(self, shape: Shape, low: Seconds) -> tuple[Seconds, dict[int, Seconds]]:
        """A lower bound on the pipelines of a variant, at least `low`, and where that is below the cutoff those by length.

        With virtual stages they are the same for both orders of weight gathers, of which that behind the optimizer has the
        longer tail and nothing shorter."""
        one = changed(shape, overlap_param_gather=True) if shape.vpp > 1 else shape
        if one not in self._known:
            classes = self._costs.classes(one)
            bound, lengths = deadline_bound(self.context, one, classes, low, max(low, self.cutoff)), dict[int, Seconds]()
            if bound < self.cutoff:
                self.refined += 1
                lengths = bounds_by_length(self.context, one, classes, self.cutoff)
            self._known[one] = bound, lengths
        bound, lengths = self._known[one]
        return max(bound, low), lengths

    def _exhausted(
        self, part: Request, shape: Shape, classes: Sequence[UnlikeStages], lengths: dict[int, Seconds]
    ) -> dict[int, Seconds]:
        """The bounds by length, after all pipelines of lengths with few of them were tried."""

        def tried(pipeline: Pipeline) -> Seconds | None:
            if self.limit.is_up() or self.exhausted >= EXHAUSTED:
                return None
            self.exhausted += 1
            return self._try(part, shape, pipeline)

        found = dict(lengths)
        for pp, seconds in lengths.items():
            if seconds < self.cutoff:
                known = exhausted(self.context, shape, classes, pp, self.cutoff, tried)
                found[pp] = seconds if known is None else max(seconds, known)
        return found

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
