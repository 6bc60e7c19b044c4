"""The deadline test of plans with mixed stages: a lower bound on the step of the plans that `planner.search.mixed` can build.

A mixed stage has replicas on several clusters. A placement fixes the slots of every replica of every stage. The layers of a
stage, the microbatches of a replica and the schedule are free. `planner.bounds.mixed_filling` tests whether a placement may
finish within a deadline; the bound is found by bisection, for each kind of schedules by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple, TypeAlias

from planner.bounds.deadline_test import PRECISE
from planner.bounds.mixed_filling import PlacedStages
from planner.bounds.mixed_splits import some_split_holds
from planner.bounds.mixed_work import PlacedWork
from planner.bounds.total_work import Work
from planner.costs.context import PlanningContext
from planner.costs.mixed_stages import MixedStageCosts, mixed_costs
from planner.space.device_slots import Run, StageSlots, distinct_offsets
from planner.space.mixed_schedules import playable, runs_alike
from planner.space.shape import Shape, split_backward
from planner.space.shapes import slots
from planner.time_limit import TimeLimit
from sim.errors import NoRoute, NotModelled
from sim.plan.schedules import Schedule
from sim.units import Seconds

Placed: TypeAlias = tuple[Shape, tuple[StageSlots, ...]]
"""A shape under any schedule, and the slots of its stages."""


class OpenPlacement(NamedTuple):
    """A placement of which no plan takes less than `bound` seconds.

    schedules: those that the bound is for, all of one kind; none where it is for all. is_closest: the deadline test gives no
    higher bound."""

    bound: Seconds
    shape: Shape
    placed: tuple[StageSlots, ...]
    schedules: tuple[Schedule, ...] = ()
    is_closest: bool = False


class MixedBound(NamedTuple):
    """A lower bound on the step of plans with mixed stages, and placements with low bounds, the one with the least bound first;
    none where no placement is below the cutoff.

    left: all placements that have a bound below the cutoff; none where the time was up."""

    seconds: Seconds
    holders: tuple[Placed, ...] = ()
    left: tuple[OpenPlacement, ...] = ()

    @property
    def words(self) -> str:
        """The layout with the least bound as printed with a certificate."""
        kind = "plans with mixed stages"
        if not self.holders:
            return kind
        shape, stages = self.holders[0]
        degrees = {"tp": shape.tp, "pp": len(stages), "dp": shape.dp} | shape.further_degrees
        parts = [f"{name} {value}" for name, value in degrees.items()]
        return ", ".join([kind, *parts, f"microbatch size {shape.microbatch_size}", f"recompute {shape.recompute}"])


def mixed_bound(context: PlanningContext, placements: Iterable[Placed], cutoff: float, limit: TimeLimit) -> MixedBound:
    """A lower bound in seconds on the step of all plans of the placements, at most `cutoff`.

    It is the least over the placements; each is a bisection to the relative width `PRECISE`. Those with the least quick bounds
    (`PlacementTest.quick`) come first. Where the time is up, those that are left have the least of their quick bounds."""
    test, bound, work = PlacementTest(context), cutoff, Work(context)
    holders, left = list[Placed](), list[OpenPlacement]()
    listed = ((work.bound(shape), number, shape, placed) for number, (shape, placed) in enumerate(placements))
    every = sorted((max(a, test.quick(c, d)) if a < cutoff else a, b, c, d) for a, b, c, d in listed)
    for number, (least, _, shape, placed) in enumerate(every):
        if least >= bound:
            left += [OpenPlacement(*one) for one in ((a, c, d) for a, _, c, d in every[number:]) if one[0] < cutoff]
            break
        if limit.is_up():
            return MixedBound(least, ((shape, placed), *reversed(holders)))
        for one in test.of_kinds(OpenPlacement(least, shape, placed)):
            closer = test.closest(one, bound)
            if closer is None:
                left.append(one._replace(bound=bound))
            elif closer < math.inf:
                bound = closer
                holders.append((shape, placed))
                left.append(one._replace(bound=closer, is_closest=True))
    return MixedBound(bound, tuple(reversed(holders)), tuple(left))


class PlacementTest:
    """Tests placements, and holds what several tests need."""

    def __init__(self, context: PlanningContext):
        self.context, self.costs = context, mixed_costs(context)
        self._shares: dict[Shape, float] = {}
        self._work, self._alike = PlacedWork(self.costs), dict[tuple[Shape, int, tuple[Schedule, ...]], bool]()
        self._kinds: dict[tuple[Shape, bool], list[tuple[Schedule, ...]]] = {}

    def of_kinds(self, one: OpenPlacement) -> list[OpenPlacement]:
        """A placement under each kind of schedules."""
        shape, several = split_backward(one.shape), len(one.placed) > 1
        if (shape, several) not in self._kinds:
            self._kinds[shape, several] = _of_one_kind(playable(self.context.request, one.shape, several))
        return [one._replace(schedules=schedules) for schedules in self._kinds[shape, several]]

    def quick(self, shape: Shape, placed: tuple[StageSlots, ...]) -> Seconds:
        """The bound of a placement under any schedule by compute, fill and drain; infinite where no schedule has it."""
        base = split_backward(shape)
        found = [math.inf]
        for one in self.of_kinds(OpenPlacement(0.0, shape, placed)):
            key = base, len(placed), one.schedules
            if key not in self._alike:
                self._alike[key] = runs_alike(self.context.request, base, len(placed), one.schedules)
            waits = self.forward_share(shape) if any(schedule.SPLITS_BACKWARD for schedule in one.schedules) else 1.0
            found.append(self._work.bound(base, placed, self._alike[key], waits))
        return min(found)

    def stages(self, one: OpenPlacement) -> PlacedStages | None:
        """The placed stages under the schedules; None where no plan has this placement, also because replicas cannot have
        equally many microbatches."""
        with suppress(NoRoute, NotModelled):  # planner.search.mixed builds no plan of these either
            stages = PlacedStages(self.costs, split_backward(one.shape), one.placed, one.schedules)
            return None if stages.alike and stages.total % one.shape.dp else stages
        return None

    def closest(self, one: OpenPlacement, below: Seconds) -> Seconds | None:
        """The bound of a placement by bisection; None where it is not `below`, infinite where no plan has this placement."""
        stages = self.stages(one)
        if stages is None:
            return math.inf
        if not stages.within(below, 0.0):
            return None
        forward = self.forward_share(one.shape)
        return _least(stages, below, forward) if _may_finish(stages, below, forward) else None

    def forward_share(self, shape: Shape) -> float:
        """Least fraction of a layer's seconds that is its forward, on any slots of the clusters."""
        shape = split_backward(shape)
        if shape not in self._shares:
            self._shares[shape] = _forward_share(self.costs, shape)
        return self._shares[shape]


def _of_one_kind(schedules: Iterable[Schedule]) -> list[tuple[Schedule, ...]]:
    """Schedules whose ranks wait for messages, or do not, and which split the backward, or do not, apart."""
    found: dict[tuple[bool, bool], list[Schedule]] = {}
    for one in schedules:
        found.setdefault((one.OVERLAPS_SENDS, one.SPLITS_BACKWARD), []).append(one)
    return [tuple(some) for some in found.values()]


def _forward_share(costs: MixedStageCosts, shape: Shape) -> float:
    return min(
        forward / (forward + backward)
        for cluster in costs.context.request.clusters()
        if slots(cluster, shape.tp) >= shape.cp
        for run in distinct_offsets(Run(cluster, 0, slots(cluster, shape.tp)), shape.tp, shape.cp)
        for (_, forward), (_, backward) in [costs.own_passes(shape, run, (False, False))]
    )


def _least(stages: PlacedStages, high: Seconds, forward: float) -> Seconds:
    """The least seconds, below `high`, within which the placed stages might finish; within `high` they might."""
    low = 0.0
    while high - low > PRECISE * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _may_finish(stages, middle, forward) else (middle, high)
    return low


def _may_finish(stages: PlacedStages, seconds: Seconds, forward: float) -> bool:
    """Whether some plan of the placement might finish within `seconds`."""
    return stages.within(seconds, forward) and some_split_holds(stages, seconds, forward)
