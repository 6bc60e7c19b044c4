"""Candidates for the first plan of a fleet of many classes: local search over stages (`planner.search.stage_search`)."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import replace

from planner.bounds.orders import deadline_tests
from planner.bounds.quick_estimate import quick_estimate
from planner.costs.node_classes import node_classes
from planner.models.class_orders import EVERY_ORDER
from planner.search.candidates import Candidate, Estimate, estimates
from planner.search.incumbent import Incumbent, doubtful
from planner.search.latency import latency_candidates
from planner.search.local_search import improved
from planner.search.stage_search import StageSearch
from planner.space.shape import Shape
from planner.space.shapes import overlaps, variants
from sim.plan import schedules

POSTPONED_UP_TO = 2_048
"""Devices of a fleet up to which the search begins again only where the proof leaves a gap (a guess): on larger ones the time
limit may end the proof before."""
WAITS_FROM = 5
"""Number of classes from which the starts count waits for messages (a guess): on four classes such starts took the search for a
first plan a third longer (`peers/hexiscale-c-56`) and made no plan faster, on eight they did."""


def restaged_candidates(incumbent: Incumbent, shapes: Iterable[Shape], base_of: dict[Shape, Shape]) -> list[Candidate]:
    """Candidates after the local search over stages, if there are more classes than all orders are estimated of.

    The search begins with the fastest candidates of each schedule that splits the backward or, where none is searched, with few
    virtual stages or none. Where stages choose how many layers they recompute, it begins with none, if any candidate fits so:
    it finds better plans then."""
    budgets, bases = incumbent.budgets, [base_of[shape] for shape in shapes]
    starts = _fastest_starts(incumbent, bases, True) or _fastest_starts(incumbent, bases, False)
    searches, found = dict[Shape, StageSearch](), list[Candidate]()
    for start in starts:
        if start.shape not in searches:
            searches[start.shape] = StageSearch(incumbent.context, start.shape, budgets.restaged_pipelines)
        found.append(searches[start.shape].improved(start))
    found.sort(key=lambda candidate: candidate.seconds)
    again = found[: budgets.restaged_again] if incumbent.context.restarts else []
    incumbent.restarts = [functools.partial(searches[one.shape].restarted, one) for one in again]
    if not incumbent.context.proves or incumbent.request.topology.fleet.devices > POSTPONED_UP_TO:
        found += [restart() for restart in incumbent.restarts]
        incumbent.restarts = []
    found += latency_candidates(incumbent.context, found, budgets)
    return improved(found, budgets.restaged_kept)


def simulate_restarted(incumbent: Incumbent) -> None:
    """Where the proof leaves a gap: begin the local search over stages again, as far as that was postponed, and simulate what
    it finds."""
    if not incumbent.restarts or incumbent.lower_bound >= incumbent.target or incumbent.limit.is_up():
        return
    incumbent.report("searching stages again")
    found = [restart() for restart in incumbent.restarts]
    incumbent.restarts = []
    found += latency_candidates(incumbent.context, found, incumbent.budgets)
    incumbent.pool.add(improved(found, incumbent.budgets.restaged_kept), incumbent.cutoff * (1 - incumbent.budgets.optimal_gap))
    incumbent.simulate_pool(incumbent.budgets.first_tries)


def _fastest_starts(incumbent: Incumbent, bases: Iterable[Shape], kept: bool) -> list[Candidate]:
    """The fastest pipelines of the starts of the local search over stages, evaluated. kept: as in `_starts`.

    Lazy evaluation: estimates are seldom above the evaluated seconds, so that none is evaluated whose estimate is not below the
    seconds of as many pipelines as are needed."""
    most, found = incumbent.budgets.restaged_starts, list[Candidate]()
    for estimate in sorted(_starts(incumbent, bases, kept), key=lambda estimate: estimate.seconds):
        if (found and incumbent.is_over) or (len(found) == most and estimate.seconds >= found[-1].seconds):
            break
        found = sorted([*found, estimate.evaluated()], key=lambda candidate: candidate.seconds)[:most]
    return found


def _starts(incumbent: Incumbent, bases: Iterable[Shape], kept: bool) -> Iterator[Estimate]:
    """The best estimates of bases under each of these schedules. kept: without recomputation where stages choose it."""
    context, budgets = incumbent.context, incumbent.budgets
    for base in bases:
        begin = base.extremes[0] if kept else base
        every = [one for one in variants(incumbent.request, begin) if one.zero_stage == base.zero_stage]
        split = [one for one in every if schedules.get(one.schedule).SPLITS_BACKWARD]
        for variant in split or [one for one in every if one.vpp <= budgets.first_vpp] or every:
            classes = node_classes(context, variant)
            if len(classes) > EVERY_ORDER and not incumbent.is_over and _may_be_faster(incumbent, variant, base):
                waits = len(classes) >= WAITS_FROM
                best = estimates(context, variant, classes, budgets.restaged_estimates, by_speed=True, waits=waits)
                yield from (estimate for estimate in best if len(estimate.pipeline) > 1)


def _may_be_faster(incumbent: Incumbent, variant: Shape, base: Shape) -> bool:
    """Whether the search for a first plan may find a pipeline of several stages of a variant that is faster than the best plan,
    by the quick estimate with the base's recomputation (`Budgets.first_doubt`) and by the deadline test. Always where there is
    no plan yet."""
    if incumbent.best is None:
        return True
    context, whole = incumbent.context, replace(variant, recompute=base.recompute)
    if quick_estimate(context, whole, node_classes(context, whole)) >= doubtful(incumbent):
        return False
    classes, either = node_classes(context, variant), len(overlaps(variant)) > 1
    return bool(deadline_tests(context, classes, incumbent.cutoff, either))
