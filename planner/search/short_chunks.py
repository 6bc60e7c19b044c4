"""Faster plans whose ranks have short chunks of the sequence (context parallelism), before the proof.

Cp that leaves a rank few tokens seldom pays: a replica of two devices with cp 2 computes what two replicas with microbatches of
half the size do, and has messages that these have not. It pays where there are no such replicas: they do not fit memory with as
few stages, or their microbatches have one sequence already, so that few of them fill long pipelines. The quick estimates tell:
where the least one with the degree that is tried (`planner.space.sequences_and_experts.short_degree`) is above the least one of
the searched variants, nothing else is tried, unless it is far below the best step: then shared links decide, which estimates do
not know. Else the best shapes go through the search for a first plan, and if the best plan has the degree in the end, all plans
with it through the search of the proof. Such plans are outside of the space that the certificate holds for, and prove
nothing."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from planner.bounds.quick_estimate import quick_estimate
from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes
from planner.placement.simulation import fits, step
from planner.request import Request
from planner.search.branch_and_bound import search_all
from planner.search.budgets import Budgets
from planner.search.candidates import Estimate, all_evaluated, estimates
from planner.search.first_plan import find_first_plan, quick_variants, ranked, simulate_best
from planner.search.incumbent import Incumbent, doubtful
from planner.search.local_search import improved
from planner.search.unlike_degrees import try_unlike
from planner.space import stand_in
from planner.space.sequences_and_experts import short_degree
from planner.space.shape import Shape, split_backward
from planner.space.shapes import USUAL_SIZES, searched, variants
from planner.space.tied_shards import with_tied_shards
from planner.time_limit import TimeLimit
from sim.errors import Infeasible
from sim.plan.plan import Plan
from sim.units import Seconds

FEW = Budgets(
    partial_shapes=2, draft_shapes=0, other_variants=4, first_estimates=2, first_evaluated=8, first_improved=2,
    restaged_starts=6, restaged_again=0, latency_pipelines=0, first_tries=4, first_unlike_tries=1, alone_tries=1,
    mixed_tries=0,
)  # fmt: skip
"""Budgets of the search for a plan with the degree that is tried, most of them a third of the usual ones or less (a guess);
none with mixed stages."""

SIZES = range(1, USUAL_SIZES[-1] + 1)
"""Microbatch sizes of these plans; whether one is searched is decided by the usual ones."""

NEAR = 0.05
"""Fraction by which their least quick estimate may be above that of the others, and pipelines of whole layers be compared (a
guess). On 24 V100 (seed 342 of `benchmarks.owned_fleets`) it is 0.2 % above, and a plan with cp 2 is 1.5 % faster."""
WRONG = 0.75
"""Fraction of the best step below which the least quick estimate of the others is no measure of it, and pipelines are compared,
too (a guess). On two nodes of four A100 (seed 7032 of `benchmarks certificates`) it is 0.7, and cp 2 is 2 % faster."""
SMALL = 16
"""Devices of a fleet up to which all plans with the degree are searched in any case (a guess): it takes 0.1 to 1 CPU second
there, and estimates choose wrong stages where nodes are few. On 14 A100 (seed 7029) it saves a fifth of the step."""


class ShortChunks:
    """The search for a faster plan with the degree that is tried, at most once."""

    def __init__(self, incumbent: Incumbent):
        self.incumbent = incumbent
        self._cp = short_degree(incumbent.request)

    def try_first(self) -> None:
        """Before the incumbent has a plan: search where the least estimate is far below that of the searched variants
        (`Budgets.short_first`)."""
        outer = self.incumbent
        if self._cp is None or outer.best is not None or outer.quickest is None or outer.limit.is_up():
            return
        outer.report(f"trying cp {self._cp}")
        inner, promising, least = self._ranked
        if least < outer.budgets.short_first * least_estimate(outer, [outer.quickest]):
            self._search(inner, promising)

    def try_after(self) -> None:
        """Once the incumbent has a plan: search where the least estimate is below that of the searched variants, or far below
        the best step (`Budgets.short_doubt`)."""
        outer = self.incumbent
        if self._cp is None or outer.best is None or outer.limit.is_up():
            return
        outer.report(f"trying cp {self._cp}")
        inner, promising, least = self._ranked
        inner.best = outer.best
        known = least_estimate(outer, filter(None, [outer.quickest]))
        far = outer.budgets.short_doubt * outer.cutoff
        is_near = least < known * (1 + NEAR) or known < WRONG * outer.cutoff
        if least < inner.target and (least < max(known, far) or (is_near and self._has_faster(inner, promising))):
            self._search(inner, promising)

    def settle(self) -> None:
        """Where the best plan has the degree, or the fleet is small (`SMALL`), search all plans with it as the proof searches
        others; no bound is kept."""
        outer, cp = self.incumbent, short_degree(self.incumbent.request)
        if cp is None or outer.best is None or outer.limit.is_up():
            return
        is_small = outer.budgets.short_shapes > 0 and outer.request.topology.fleet.devices <= SMALL
        if outer.best.config.cp != cp and not is_small:
            return
        outer.report(f"searching cp {cp}")
        self._keep(with_all_searched(outer, cp))

    def try_unlike(self) -> None:
        """Once plans of unlike degrees are tried: try those with the degree, too. Each may pay only with the other: on five
        nodes of two MI210 (seed 7007) both together are 7 % faster than cp 2 alone."""
        outer, cp = self.incumbent, short_degree(self.incumbent.request)
        if cp is None or outer.best is None or outer.limit.is_up():
            return
        inner = _with_degree(outer, cp, outer.budgets)
        try_unlike(inner, bases_of(inner.request))
        self._keep(inner)

    def _has_faster(self, inner: Incumbent, promising: Sequence[Shape]) -> bool:
        """Simulate the best pipelines of the first of these shapes, and return whether one is faster than the best plan. Unlike
        quick estimates, they have whole layers, messages of their own, and recompute what their memory requires: one or the
        other may make the best plan slower than its estimate."""
        best, budgets, context = self.incumbent.best, inner.budgets, inner.context
        if best is None or best.config.world_size > budgets.ranks_of_a_large_one:
            return False
        found: list[Estimate] = []
        for shape in quick_variants(inner, promising[: budgets.first_improved]):
            for waits in (False, True):
                found += estimates(context, shape, node_classes(context, shape), 1, waits=waits)
        found = sorted(found, key=lambda one: one.seconds)[: budgets.first_evaluated]
        fastest = sorted(improved(all_evaluated(found), budgets.first_improved), key=lambda one: one.seconds)
        return any(inner.offer(one.shape, one.stages) for one in fastest if one.seconds < inner.target)

    @functools.cached_property
    def _ranked(self) -> tuple[Incumbent, list[Shape], Seconds]:
        """(incumbent of a request with the degree pinned, shapes with the least quick estimates, the least of them all)."""
        assert self._cp is not None
        inner = _with_degree(self.incumbent, self._cp)
        base_of = {split_backward(base): base for base in bases_of(inner.request)}
        promising = [base_of[shape] for shape in ranked(inner, base_of, self.incumbent.budgets.short_shapes)]
        return inner, promising, least_estimate(inner, quick_variants(inner, promising))

    def _search(self, inner: Incumbent, promising: list[Shape]) -> None:
        """Search plans of these shapes that are faster than the best one, and keep the fastest."""
        self._cp = None
        find_first_plan(inner, list(_of_every_size(inner.request, promising)), sizes=SIZES)
        if inner.best_shape is not None:  # all schedules and ZeRO stages: the proof considers others, but not these
            others = variants(inner.request, replace(inner.best_shape, overlap_param_gather=True))
            simulate_best(inner, [one for one in others if not doubtful(inner) <= _estimate(inner, one) < math.inf])
        self._keep(inner)

    def _keep(self, inner: Incumbent) -> None:
        """Keep the fastest plan of a search, if it is faster, and all that it simulated."""
        outer = self.incumbent
        outer.context.simulated += (one for one in inner.context.simulated if one is not inner.best)
        if inner.best is not None and inner.best is not outer.best and inner.cutoff < outer.target:
            outer.keep(inner.best)
            outer.report(f"trying cp {inner.request.wishes.cp}")


def with_all_searched(outer: Incumbent, cp: int) -> Incumbent:
    """An incumbent for all plans with a degree that are faster than that of `outer`, which is its best one where none is."""
    inner = _with_degree(outer, cp, outer.budgets)
    search_all(inner, bases_of(inner.request, True, True))
    return inner


def with_short_chunks(request: Request, context: PlanningContext, best: Plan | None, limit: TimeLimit) -> Plan | None:
    """The plan `best` of a model whose layers differ, or one with the degree that is tried that is faster by
    `Budgets.target_gap`: the plans of its stand-ins with that degree, with the model's own layers, simulated."""
    for part, inside in zip(stand_in.stand_ins(request), context.stand_ins.values(), strict=False):
        alike = min(inside.simulated, key=step, default=None)
        if best is None or alike is None or short_degree(part) is None or limit.is_up():
            continue
        kept = Incumbent(part, inside, Budgets(), limit, alike)
        kept.quickest = next(iter(ranked(kept, quick_variants(kept, bases_of(part)), 1)), None)
        ShortChunks(kept).try_after()
        if kept.best is not None and kept.best.config.cp == short_degree(part):
            with suppress(Infeasible):
                found = stand_in.of_model(kept.best, request)
                if fits(found) and not request.refuses(found):
                    found = context.timelines.simulate(found)
                    best = found if step(found) < step(best) * (1 - kept.budgets.target_gap) else best
    return best


def _with_degree(incumbent: Incumbent, cp: int, budgets: Budgets = FEW) -> Incumbent:
    """An incumbent of the request with a degree pinned, whose plans must be faster than the best one."""
    request, outer = incumbent.request, incumbent.context
    context = outer.of(replace(request, wishes=replace(request.wishes, cp=cp)))
    context.limit, context.effort, context.timelines = incumbent.limit, outer.effort, outer.timelines
    context.every_step = outer.every_step
    return Incumbent(context.request, context, budgets, incumbent.limit, incumbent.best)


def bases_of(request: Request, every_size: bool = False, unequal: bool = False) -> Iterator[Shape]:
    """The shapes of usual microbatch sizes, or of all, whose dp divides the batch, with `unequal` also others; none where the
    target or the devices have none."""
    with suppress(Infeasible):
        for shape in searched(request, every_size=every_size, unequal=unequal):
            yield with_tied_shards(request, shape)


def _of_every_size(request: Request, shapes: Iterable[Shape]) -> Iterator[Shape]:
    """The shapes that differ from these in nothing but their microbatch size."""
    alike = {replace(shape, microbatch_size=1) for shape in shapes}
    yield from (base for base in bases_of(request, True) if replace(base, microbatch_size=1) in alike)


def least_estimate(incumbent: Incumbent, shapes: Iterable[Shape]) -> Seconds:
    """The least quick estimate of variants of shapes; infinite where there is none."""
    return min((_estimate(incumbent, one) for one in ranked(incumbent, shapes, 1)), default=math.inf)


def _estimate(incumbent: Incumbent, shape: Shape) -> Seconds:
    return quick_estimate(incumbent.context, shape, node_classes(incumbent.context, shape))
