"""The deadline test of plans with mixed stages: a lower bound on the step of the plans that `planner.search.mixed` can build.

A mixed stage has replicas on several clusters. A placement fixes the slots of every replica of every stage. The layers of a
stage, the microbatches of a replica and the schedule are free. `planner.bounds.mixed_filling` tests whether a placement may
finish within a deadline; the bound is found by bisection, for each kind of schedules by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple, TypeAlias

from planner.bounds.deadline_test import PRECISE
from planner.bounds.mixed_filling import PlacedStages
from planner.bounds.mixed_splits import some_split_holds
from planner.bounds.total_work import Work
from planner.costs.context import PlanningContext
from planner.costs.mixed_stages import MixedStageCosts
from planner.space.device_slots import Run, StageSlots, distinct_offsets
from planner.space.mixed_schedules import playable
from planner.space.shape import Shape, split_backward
from planner.space.shapes import slots
from planner.time_limit import TimeLimit
from sim.errors import NoRoute, NotModelled
from sim.plan.schedules import Schedule
from sim.units import Seconds

Placed: TypeAlias = tuple[Shape, tuple[StageSlots, ...]]
"""A shape under any schedule, and the slots of its stages."""


class MixedBound(NamedTuple):
    """A lower bound on the step of plans with mixed stages, and placements with low bounds, the one with the least bound first;
    none where no placement is below the cutoff."""

    seconds: Seconds
    holders: tuple[Placed, ...] = ()

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

    It is the least over the placements; each is a bisection to the relative width `PRECISE`. Those with the least total work
    come first. Where the time is up, the bound of those that are left is that of their total work."""
    costs, bound, shares, work = MixedStageCosts(context), cutoff, dict[Shape, float](), Work(context)
    known: dict[tuple[Shape, bool], list[list[Schedule]]] = {}
    holders: list[Placed] = []
    for shape, placed in sorted(placements, key=lambda pair: work.bound(pair[0])):
        if work.bound(shape) >= bound:
            break
        if limit.is_up():
            return MixedBound(work.bound(shape), ((shape, placed), *reversed(holders)))
        one, several = split_backward(shape), len(placed) > 1
        if (one, several) not in known:
            known[one, several] = _of_one_kind(playable(context.request, shape, several))
        for kind in known[one, several]:
            with suppress(NoRoute, NotModelled):  # planner.search.mixed builds no plan of these either
                stages = PlacedStages(costs, one, placed, kind)
                if stages.within(bound, 0.0):
                    if one not in shares:
                        shares[one] = _forward_share(costs, one)
                    closer = _least(stages, bound, shares[one])
                    if closer < bound:
                        bound = closer
                        holders.append((shape, placed))
    return MixedBound(bound, tuple(reversed(holders)))


def _of_one_kind(schedules: Iterable[Schedule]) -> list[list[Schedule]]:
    """Schedules whose ranks wait for messages, or do not, and which split the backward, or do not, apart."""
    found: dict[tuple[bool, bool], list[Schedule]] = {}
    for one in schedules:
        found.setdefault((one.OVERLAPS_SENDS, one.SPLITS_BACKWARD), []).append(one)
    return list(found.values())


def _forward_share(costs: MixedStageCosts, shape: Shape) -> float:
    """Least fraction of a layer's seconds that is its forward, on any slots of the clusters."""
    return min(
        forward / (forward + backward)
        for cluster in costs.context.request.clusters()
        if slots(cluster, shape.tp) >= shape.cp
        for run in distinct_offsets(Run(cluster, 0, slots(cluster, shape.tp)), shape.tp, shape.cp)
        for (_, forward), (_, backward) in [costs.own_passes(shape, run, (False, False))]
    )


def _least(stages: PlacedStages, bound: Seconds, forward: float) -> Seconds:
    """The least seconds within which the placed stages might finish, at most `bound`."""
    low, high = 0.0, bound
    if not _may_finish(stages, bound, forward):
        return bound
    while high - low > PRECISE * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _may_finish(stages, middle, forward) else (middle, high)
    return low


def _may_finish(stages: PlacedStages, seconds: Seconds, forward: float) -> bool:
    """Whether some plan of the placement might finish within `seconds`."""
    return stages.within(seconds, forward) and some_split_holds(stages, seconds, forward)
