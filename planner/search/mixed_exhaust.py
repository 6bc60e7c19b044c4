"""Raises the bound of plans with mixed stages: plans of the placements that hold it are evaluated, and simulated if need be.

The deadline test of a placement (`planner.bounds.mixed_deadline`) does not know that messages of neighbouring stages share
NICs. Where few splits of the layers pass the test, each has one plan under each schedule, since replicas have equally many
microbatches. Those that the recurrence (`planner.bounds.mixed_evaluation`) does not rule out are simulated, which also finds
faster plans. Placements come in the order of their bounds, as long as the bound of all plans depends on them."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from planner.bounds.mixed_deadline import MixedBound, OpenPlacement, PlacementTest
from planner.bounds.mixed_evaluation import least_steps
from planner.bounds.mixed_splits import splits
from planner.placement.ranks import assemble
from planner.placement.simulation import fits
from planner.search.incumbent import Incumbent, forwards
from planner.space.device_slots import devices
from planner.space.mixed_schedules import variants_of_mixed
from planner.space.runnable import runs
from planner.space.shape import Shape
from sim.errors import NoRoute, NotDefined, NotModelled
from sim.plan.plan import Plan
from sim.units import Seconds


def exhaust_mixed(incumbent: Incumbent, mixed: MixedBound) -> MixedBound:
    """The bound after the plans of the placements that hold it are ruled out, until it is that of whole stages or the target,
    a placement has too many of them, or the time is up."""
    test, heap = PlacementTest(incumbent.context), list(mixed.left)
    if not heap:
        return mixed
    numbered = [(one.bound, number, one) for number, one in enumerate(heap)]
    heapq.heapify(numbered)
    number, tries = len(numbered), 0
    while numbered and numbered[0][0] < min(incumbent.target, incumbent.lower_bound) and not incumbent.limit.is_up():
        incumbent.report("simulating mixed stages that hold the bound")
        _, _, one = numbered[0]
        if one.is_closest:
            found = _plans(incumbent, test, one, incumbent.budgets.mixed_bound_tries - tries)
            if found is None:
                break
            heapq.heappop(numbered)
            for plan in found:
                better = incumbent.challenge(plan)[1]
                tries = 0 if better else tries + 1 + forwards(plan) // incumbent.budgets.forwards_of_a_try
            continue
        heapq.heappop(numbered)
        for tested in [one] if one.schedules else test.of_kinds(one):
            closest = test.closest(tested, incumbent.target)
            if closest is not None:
                number += 1
                least = max(closest, one.bound)
                heapq.heappush(numbered, (least, number, tested._replace(bound=least, is_closest=True)))
    if not numbered or numbered[0][0] >= incumbent.target:
        return MixedBound(incumbent.target)
    first = numbered[0][2]
    others = [holder for holder in mixed.holders if holder != (first.shape, first.placed)]
    return MixedBound(first.bound, ((first.shape, first.placed), *others))


def _plans(incumbent: Incumbent, test: PlacementTest, one: OpenPlacement, most: int) -> list[Plan] | None:
    """The plans of a placement that might beat the target, the fastest by the recurrence first; None where they are more than
    `most`, or cannot be listed."""
    stages = test.stages(one)
    if stages is None:
        return []
    if not stages.alike or one.shape.ep > 1:  # each replica has its own microbatches, or waits for others in each of them
        return None
    every = splits(stages, incumbent.target, test.forward_share(one.shape), incumbent.budgets.mixed_splits)
    if every is None:
        return None
    found: list[tuple[Seconds, int, Plan]] = []
    for shape in _variants(incumbent, one):
        try:
            seconds = least_steps(stages, shape, every)
        except NotModelled:
            return None
        able = [(least, split) for least, split in zip(seconds.tolist(), every, strict=True) if least < incumbent.target]
        if len(found) + len(able) > most:
            return None
        microbatches = (stages.total // shape.dp,) * shape.dp
        for least, split in able:
            try:
                held = devices(one.placed, shape.tp)
                plan = assemble(incumbent.request, shape, split, held, "certified", microbatches)
            except (NoRoute, NotDefined, NotModelled):
                continue
            if fits(plan):
                found.append((least, len(found), plan))
    return [plan for _, _, plan in sorted(found)]


def _variants(incumbent: Incumbent, one: OpenPlacement) -> Iterator[Shape]:
    """The shapes of a placement under its schedules that the target can run."""
    names, several = [schedule.NAME for schedule in one.schedules], 2 if len(one.placed) > 1 else 1
    for shape in variants_of_mixed(incumbent.request, one.shape):
        if shape.schedule in names and runs(incumbent.request, shape, several):
            yield shape
