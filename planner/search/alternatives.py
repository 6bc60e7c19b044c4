"""Alternatives to the best plan: near-best plans of other layouts, for users who measure several layouts before they choose.

A layout is tp, pp, dp, cp, ep, etp, microbatch size and recomputation. There is a plan for each of its schedules, with the vpp
and layers that are fastest on an idle network (`planner.search.candidates`). Shapes are taken in the order of a quick estimate,
and only usual microbatch sizes are tried. This is no search with a bound: a layout may have a faster plan than the one here,
and layouts may be missing."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress

from planner.bounds.quick_estimate import quick_estimate
from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes
from planner.placement.ranks import build
from planner.placement.simulation import fits
from planner.request import Request
from planner.search.candidates import Candidate, Estimate, estimates
from planner.space.shape import Shape, split_backward
from planner.space.shapes import searched, variants
from planner.time_limit import TimeLimit
from sim.errors import NoRoute, NotDefined
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan

SHAPES = 32
"""Shapes with the least quick estimates whose pipelines are estimated. Guess; more takes longer and finds more layouts."""
MOST_CHUNKS = 4
"""Largest vpp. Guess: a larger one is seldom faster, and there is a variant for each value."""
TRIES = 8
"""Most plans of one layout that are built until one fits memory and is accepted. Guess."""

Layout = tuple[int, int, int, int, int, int | None, int, str]
"""tp, pp, dp, cp, ep, etp, microbatch size and recomputation."""


def layout_of(config: ParallelConfig | Shape, pp: int) -> Layout:
    """The layout of a configuration or shape with pp pipeline ranks."""
    return config.tp, pp, config.dp, config.cp, config.ep, config.etp, config.microbatch_size, config.recompute


def alternatives(
    request: Request,
    context: PlanningContext,
    most: int,
    near: float = math.inf,
    accepts: Callable[[Plan], bool] = lambda plan: True,
    limit: TimeLimit | None = None,
) -> list[Plan]:
    """At most `most` plans, one for each layout and schedule, the fastest on an idle network first; not simulated.

    Steps are at most `near` times that of the first plan. `accepts` says whether a plan is wanted. Without a
    `limit`, the time limit of the request holds from now on. Raises Infeasible where there is no shape."""
    limit = limit or TimeLimit(request.time_limit)
    found, tries = dict[tuple[Layout, str], Plan](), Counter[tuple[Layout, str]]()
    slowest = math.inf
    for candidate in _sorted(_estimated(request, context, limit)):
        if candidate.seconds > slowest or len(found) >= most or (found and limit.is_up()):
            break
        key = layout_of(candidate.shape, len(candidate.pipeline)), candidate.shape.schedule
        if key in found or tries[key] >= TRIES:
            continue
        tries[key] += 1
        with suppress(NoRoute, NotDefined):  # the pipeline cannot be built
            plan = build(request, candidate.shape, candidate.stages, "certified")
            if fits(plan) and accepts(plan):
                found[key] = plan
                slowest = min(slowest, near * candidate.seconds)
                context.progress(f"{len(found)} alternatives")
    context.limit.reached |= limit.reached
    return list(found.values())


def _sorted(found: list[Estimate]) -> Iterator[Candidate]:
    """Candidates, the least seconds by the evaluator first, if no estimate is too high.

    Lazy evaluation: an estimate enters a heap, and is evaluated when it is first taken from the heap."""
    heap: list[tuple[float, int, Estimate | Candidate]] = [(one.seconds, i, one) for i, one in enumerate(found)]
    heapq.heapify(heap)
    while heap:
        _, index, one = heapq.heappop(heap)
        if isinstance(one, Candidate):
            yield one
        else:
            candidate = one.evaluated()
            heapq.heappush(heap, (candidate.seconds, index, candidate))


def _estimated(request: Request, context: PlanningContext, limit: TimeLimit) -> list[Estimate]:
    """The best pipeline of each length of each variant of the best shapes."""
    ranked: list[tuple[float, int, Shape]] = []
    for index, base in enumerate(searched(request, every_size=False)):
        quick = split_backward(base)
        seconds = quick_estimate(context, quick, node_classes(context, quick), False)
        if seconds < math.inf:
            ranked.append((seconds, index, base))
    found: list[Estimate] = []
    for _, _, base in sorted(ranked)[:SHAPES]:
        for variant in variants(request, base):
            if variant.zero_stage != base.zero_stage or variant.vpp > max(MOST_CHUNKS, base.vpp):
                continue
            lengths: dict[int, Estimate] = {}
            for estimate in estimates(context, variant, node_classes(context, variant)):
                if len(estimate.pipeline) > 1 or variant.vpp == 1 or request.wishes.vpp:  # virtual stages need a pipeline
                    lengths.setdefault(len(estimate.pipeline), estimate)
            found += lengths.values()
        if found and limit.is_up():
            break
    return found
