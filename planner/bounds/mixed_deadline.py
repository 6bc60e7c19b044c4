"""The deadline test of plans with mixed stages: a lower bound on the step of those that `planner.search.mixed` can lay out.

Of a layout it is known where every replica of every stage stands. A replica of group g whose stage i holds k layers has time
for floor((T - fill - tail) / (s + k c)) microbatches in T seconds; those of all replicas together must be all there are, which
bounds k. As in `planner.bounds.deadline` stages are filled from the last one to the first, and where layers are left over, no
plan that stands so is done in T, whatever its schedule, its layers and the microbatches of its replicas. Messages count where
those of the replicas of a node, there and back, leave it more slowly than the stage works; their latency does not, nor the
exchange of tokens with experts, and each stage may share out the microbatches for itself: all err to the safe side.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from planner.bounds.deadline import PRECISE
from planner.bounds.total_work import Work
from planner.costs.context import PlanningContext
from planner.costs.mixed_stages import LineCosts
from planner.space.device_slots import Run, StageSlots, replicas, unlike
from planner.space.shapes import Shape, slots, splitting
from sim.errors import NoRoute, NotModelled


def mixed_bound(
    context: PlanningContext, layouts: Iterable[tuple[Shape, tuple[StageSlots, ...]]], cutoff: float, deadline: float = math.inf
) -> float | None:
    """A lower bound on the step of all plans that stand so, at most `cutoff`; None where time ends before."""
    costs, bound, shares, work = LineCosts(context), cutoff, dict[Shape, float](), Work(context)
    for shape, stands in layouts:
        if time.monotonic() > deadline:
            return None
        if work.bound(shape) >= bound:
            continue
        one = splitting(shape)
        with suppress(NoRoute, NotModelled):  # such layouts are not laid out either (planner.search.mixed)
            layout = _Layout(costs, one, stands)
            if not layout.within(bound, 0.0):
                continue
            if one not in shares:
                shares[one] = min(
                    forward / (forward + backward)
                    for cluster in context.request.clusters()
                    if slots(cluster, one.tp) >= one.cp
                    for run in unlike(Run(cluster, 0, slots(cluster, one.tp)), one.tp, one.cp)
                    for (_, forward), (_, backward) in [costs.own_passes(one, run, (False, False))]
                )
            low, high = 0.0, bound
            if layout.within(bound, shares[one]):
                while high - low > PRECISE * high:
                    middle = (low + high) / 2
                    low, high = (low, middle) if layout.within(middle, shares[one]) else (middle, high)
                bound = low
    return bound


class _Layout:
    """Stages that stand somewhere, and how fast each group of alike replicas does them.

    Raises NoRoute or NotModelled where it cannot be."""

    def __init__(self, costs: LineCosts, shape: Shape, stands: tuple[StageSlots, ...]):
        self.costs, self.shape, self.stands = costs, shape, stands
        self.layers = costs.workload.model.layers
        self.total = costs.workload.global_batch_size // shape.microbatch_size
        self.ends = [(place == 0, place == len(stands) - 1) for place in range(len(stands))]
        groups = replicas(stands, shape.cp)
        self.counts = [group[0].count // shape.cp for group in groups]
        ahead, back = ([self._leaves(groups, place, step) for place in range(len(stands))] for step in (1, -1))
        self.lanes = [[a + b for a, b in zip(*both, strict=True)] for both in zip(ahead, back, strict=True)]
        self.paces = [
            [costs.least_seconds(shape, group[place], end) for group in groups] for place, end in enumerate(self.ends)
        ]

    def within(self, seconds: float, forward: float) -> bool:
        """Whether it cannot be ruled out that a plan takes no more than so many seconds.

        `forward` is the least share of a layer's work that is forward; 0 leaves fill and tails out, which is quick."""
        left = self.layers
        for place in reversed(range(len(self.stands))):
            most = self._memory(place) if forward else left
            low, high = 0, min(left, most)
            while low < high:
                k = (low + high + 1) // 2
                low, high = (k, high) if self._holds(place, k, left - k, seconds, forward) else (low, k - 1)
            if not low:
                return False
            left -= low
            if left <= 0:
                return True
        return False

    def _memory(self, place: int) -> int:
        shape = replace(self.shape, schedule="1f1b")
        return self.costs.most(shape, self.stands[place], place, len(self.stands), 1)

    def _holds(self, place: int, k: int, before: int, seconds: float, forward: float) -> bool:
        """Whether the replicas of a stage of k layers have time for all microbatches."""
        left, done = seconds, 0
        if forward:
            cost = self.costs.cost(self.shape, self.stands[place], k, self.ends[place])
            left -= cost.tail(self.costs.config(self.shape, len(self.stands)))
        for group, (count, (start, each)) in enumerate(zip(self.counts, self.paces[place], strict=True)):
            fill = forward * before * min((paces[group][1] for paces in self.paces[:place]), default=0.0)
            times = math.floor((left - fill) / (start + k * each))
            if forward and self.lanes[place][group]:
                times = min(times, math.floor(seconds / self.lanes[place][group]))
            done += count * max(times, 0)
        return done >= self.total

    def _leaves(self, groups: tuple[tuple[Run, ...], ...], place: int, step: int) -> list[float]:
        """Seconds that a microbatch's messages to the next (or the previous) stage take to leave a node, by group."""
        if not 0 <= place + step < len(self.stands):
            return [0.0] * len(groups)
        return [self.costs.leaves(self.shape, group[place], group[place + step]) for group in groups]
