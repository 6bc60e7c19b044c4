"""Raises the bound of plans with mixed stages: plans of the placements that hold it are evaluated, and simulated if need be.

The deadline test of a placement (`planner.bounds.mixed_deadline`) does not know that messages of neighbouring stages share
NICs. Where few splits of the layers pass the test, each has one plan under each schedule, if replicas have equally many
microbatches; else all plans with a split have one bound, and none is simulated. Those that the recurrence
(`planner.bounds.mixed_evaluation`) does not rule out are simulated, which also finds faster plans. Placements come in the order
of their bounds, and then their plans in that of theirs, as long as the bound of all plans depends on them. Where more plans are
left than may be simulated, those are whose bounds leave too large a gap, if these are few."""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from planner.bounds.mixed_deadline import MixedBound, OpenPlacement, PlacementTest
from planner.bounds.mixed_evaluation import least_steps, least_steps_of_own
from planner.bounds.mixed_splits import OWN, splits
from planner.bounds.path_stages import most_microbatches
from planner.placement.ranks import assemble
from planner.placement.simulation import fits
from planner.search.incumbent import Incumbent, forwards
from planner.search.quick_trials import Kind, QuickTrials
from planner.space.device_slots import devices
from planner.space.mixed_schedules import playable_variants
from planner.space.shape import Shape
from sim.errors import NoRoute, NotDefined, NotModelled
from sim.plan.parallel_config import BLOCK
from sim.plan.plan import Plan
from sim.units import Seconds


@dataclass(slots=True)
class Listed:
    """The plans of a placement that might take less than some seconds: a shape and a split of the layers each, with lower
    bounds on their steps; `others`: the least bound of plans whose replicas have numbers of their own, which are not listed."""

    one: OpenPlacement
    plans: list[tuple[Seconds, Shape, tuple[int, ...]]] = field(default_factory=list)
    others: Seconds = math.inf

    @property
    def least(self) -> Seconds:
        """The least bound of a plan; infinite where none is left."""
        return self.plans[0][0] if self.plans else self.others


def exhaust_mixed(incumbent: Incumbent, mixed: MixedBound, enough: Seconds = math.inf) -> MixedBound:
    """The bound after the plans of the placements that hold it are ruled out, until it is `enough` or the target, a placement
    has too many of them, or the time is up."""
    if not mixed.left:
        return mixed
    test, most = PlacementTest(incumbent.context), min(incumbent.target, enough)
    numbers = itertools.count()
    heap: list[tuple[Seconds, int, OpenPlacement | Listed]] = [(one.bound, next(numbers), one) for one in mixed.left]
    heapq.heapify(heap)
    tries, quick = incumbent.budgets.mixed_bound_tries, QuickTrials(incumbent)
    while heap and heap[0][0] < min(most, incumbent.target) and not incumbent.limit.is_up():
        incumbent.report("ruling out plans with mixed stages")
        bound, number, open_ = heap[0]
        if isinstance(open_, Listed):
            if not open_.plans:
                break
            every = (one for _, _, one in heap if isinstance(one, Listed))
            below = incumbent.cutoff if quick.is_useful and tries > 0 else _worth_it(every, incumbent, tries)
            if below is None:
                break
            tries = _simulated(incumbent, quick, open_, tries, below)
            heapq.heapreplace(heap, (open_.least, number, open_))
        elif open_.is_closest:
            listed = _listed(incumbent, test, open_, most)
            if listed is None:
                break
            heapq.heapreplace(heap, (max(bound, listed.least), number, listed))
        else:
            heapq.heappop(heap)
            for one in [open_] if open_.schedules else test.of_kinds(open_):
                closest = test.closest(one, most)
                if closest is not None:
                    least = max(closest, bound)
                    heapq.heappush(heap, (least, next(numbers), one._replace(bound=least, is_closest=True)))
    bound = min([max(most, mixed.seconds), incumbent.cutoff, *(least for least, _, _ in heap[:1])])
    if not heap or heap[0][0] >= min(most, incumbent.target):
        return MixedBound(bound)
    _, _, first = heap[0]
    return MixedBound(bound, ((first.one if isinstance(first, Listed) else first)[1:3],))


def _worth_it(every: Iterable[Listed], incumbent: Incumbent, tries: int) -> Seconds | None:
    """Seconds up to which a plan is simulated: the best step where so many simulations suffice for all listed plans, else the
    step that leaves a small gap, where they suffice for those below; None where they do not."""
    bounds = [least for listed in every for least, _, _ in listed.plans]
    if len(bounds) <= tries:
        return incumbent.cutoff
    small = incumbent.cutoff * (1 - incumbent.budgets.wide_gap)
    return small if 0 < sum(least < small for least in bounds) <= tries else None


def _listed(incumbent: Incumbent, test: PlacementTest, one: OpenPlacement, most: Seconds) -> Listed | None:
    """The plans of a placement that might take less than `most`, the fastest by their bounds first; None where they cannot be
    listed."""
    stages = test.stages(one)
    if stages is None:
        return Listed(one)
    if one.shape.ep > 1:  # each replica waits for others in each of its microbatches
        return None
    numbers = 1 if stages.alike else most_microbatches(stages)
    if numbers > OWN:
        return None
    every = splits(stages, most, test.forward_share(one.shape), incumbent.budgets.mixed_splits // numbers)
    if not every:
        return None if every is None else Listed(one)
    found: list[tuple[Seconds, Shape, tuple[int, ...]]] = []
    names = {schedule.NAME for schedule in one.schedules}
    for shape in playable_variants(incumbent.request, one.shape, len(one.placed) > 1):
        if shape.schedule not in names:
            continue
        try:
            if stages.alike:
                seconds = least_steps(stages, shape, every, most).tolist()
            else:
                seconds = least_steps_of_own(stages, shape, every, numbers, most).tolist()
        except NotModelled:
            return None
        found += [(least, shape, split) for least, split in zip(seconds, every, strict=True) if least < most]
    if not stages.alike:
        return Listed(one, others=min((least for least, _, _ in found), default=math.inf))
    return Listed(one, sorted(found, key=lambda plan: plan[0]))


def _simulated(incumbent: Incumbent, quick: QuickTrials, listed: Listed, tries: int, below: Seconds) -> int:
    """Simulate the first plan, and remove it; return how many more may be simulated, in a row without a faster one. A long
    simulation counts as several, a quick one as none. A plan whose simulation is abandoned, since it takes longer than `below`,
    is listed there."""
    _, shape, split = listed.plans.pop(0)
    microbatches = incumbent.request.workload.global_batch_size // shape.microbatch_size // shape.dp
    held = devices(listed.one.placed, shape.tp)

    def made(layers: tuple[int, ...]) -> Plan:
        return assemble(incumbent.request, shape, layers, held, "certified", (microbatches,) * shape.dp)

    kind = Kind((shape, held), made, microbatches * len(split), shape.recompute == BLOCK)
    if quick.is_slower(kind, split, below):
        seconds = below
    else:
        try:
            plan = made(split)
        except (NoRoute, NotDefined, NotModelled):  # the plan cannot be built
            return tries
        if not fits(plan):
            return tries
        tries -= 1 + forwards(plan) // incumbent.budgets.forwards_of_a_try
        seconds, better = incumbent.challenge(plan, below)
        if better:
            return incumbent.budgets.mixed_bound_tries
    if below < min(math.nextafter(seconds, math.inf), incumbent.cutoff):
        bisect.insort(listed.plans, (below, shape, split), key=lambda plan: plan[0])
    return tries
