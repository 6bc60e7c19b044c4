"""The deadline test of plans with mixed stages: a lower bound on the step of the plans that `planner.search.mixed` can lay out.

A mixed stage has replicas on several clusters. A layout fixes where every replica of every stage is placed, but not the layers
of a stage, the microbatches of a replica, or the schedule. A replica of group g whose stage i has k layers has time for at
most floor((T - fill - tail) / (s + k c)) microbatches in T seconds, where s + k c are its seconds for one microbatch. The
replicas of a stage together must process all microbatches, which bounds k from above. As in `planner.bounds.greedy_filling`,
stages are filled from the last to the first; if layers are left over, no plan of the layout finishes within T. That is a proof
because the tail is the least of this and all larger sizes that compute in time: with as many layers before it, a stage that can
hold k layers can hold fewer, so where fewer layers are left, it can leave as few to the stages before it.

Every simplification is a relaxation: messages count only where those of a node's replicas, in both directions, leave the node
more slowly than the stage computes; latency and the all-to-all of experts do not count; and each stage may distribute the
microbatches over its replicas independently.
"""

from __future__ import annotations

import bisect
import math
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from planner.bounds.deadline_test import PRECISE
from planner.bounds.total_work import Work
from planner.costs.context import PlanningContext
from planner.costs.mixed_stages import MixedStageCosts
from planner.space.device_slots import Run, StageSlots, replicas, unlike
from planner.space.shapes import Shape, slots, splitting
from sim.errors import NoRoute, NotModelled
from sim.units import Seconds


def mixed_bound(
    context: PlanningContext, layouts: Iterable[tuple[Shape, tuple[StageSlots, ...]]], cutoff: float, deadline: float = math.inf
) -> float | None:
    """A lower bound in seconds on the step of all plans of the layouts, at most `cutoff`; None where `deadline` passes first.

    The least over the layouts; each is a bisection to the relative width `PRECISE`."""
    costs, bound, shares, work = MixedStageCosts(context), cutoff, dict[Shape, float](), Work(context)
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
    """Placed stages, and the speed of each group of identically placed replicas on each stage.

    Raises NoRoute or NotModelled where the layout cannot be a plan."""

    def __init__(self, costs: MixedStageCosts, shape: Shape, stands: tuple[StageSlots, ...]):
        self.costs, self.shape, self.stands = costs, shape, stands
        self.layers = costs.workload.model.layers
        self.total = costs.workload.global_batch_size // shape.microbatch_size
        self.ends = [(place == 0, place == len(stands) - 1) for place in range(len(stands))]
        groups = replicas(stands, shape.cp)
        self.counts = [group[0].count // shape.cp for group in groups]
        ahead, back = ([self._leaves(groups, place, step) for place in range(len(stands))] for step in (1, -1))
        self.lanes = [[a + b for a, b in zip(*both, strict=True)] for both in zip(ahead, back, strict=True)]
        self.seconds_of = [
            [costs.least_seconds(shape, group[place], end) for group in groups] for place, end in enumerate(self.ends)
        ]

    def within(self, seconds: float, forward: float) -> bool:
        """Whether some plan of the layout might finish within `seconds` (False is a proof that none does).

        forward: least share of a layer's work that is forward; 0 leaves out fill, tails, memory and messages (quick)."""
        left = self.layers
        for place in reversed(range(len(self.stands))):
            held = self._most_layers(place, left, seconds, forward)
            if not held:
                return False
            left -= held
            if left <= 0:
                return True
        return False

    def _most_layers(self, place: int, left: int, seconds: float, forward: float) -> int:
        """Most layers of a stage, with `left` layers in it and before it; 0 where it cannot hold one."""
        sizes = range(1, self.layers + 1)
        by_compute = bisect.bisect_left(sizes, True, key=lambda k: not self._holds(place, k, 0, seconds, seconds, 0.0))
        if not forward:
            return min(by_compute, left)
        most, tail = min(left, self._most_by_memory(place)), math.inf
        for k in range(by_compute, 0, -1):
            tail = min(tail, self._tail(place, k))
            if k <= most and self._holds(place, k, left - k, seconds, seconds - tail, forward):
                return k
        return 0

    def _most_by_memory(self, place: int) -> int:
        shape = replace(self.shape, schedule="1f1b")
        return self.costs.most(shape, self.stands[place], place, len(self.stands), 1)

    def _holds(self, place: int, k: int, before: int, seconds: float, until: float, forward: float) -> bool:
        """Whether the replicas of a stage of k layers, with `before` layers before it, have time for all microbatches.

        The last backward ends by `until`, and the lanes have `seconds`."""
        done = 0
        for group, (count, (start, each)) in enumerate(zip(self.counts, self.seconds_of[place], strict=True)):
            fill = forward * before * min((seconds_of[group][1] for seconds_of in self.seconds_of[:place]), default=0.0)
            times = math.floor((until - fill) / (start + k * each))
            if forward and self.lanes[place][group]:
                times = min(times, math.floor(seconds / self.lanes[place][group]))
            done += count * max(times, 0)
        return done >= self.total

    def _tail(self, place: int, k: int) -> Seconds:
        """Seconds of a stage of k layers behind its last backward."""
        cost = self.costs.cost(self.shape, self.stands[place], k, self.ends[place])
        return cost.tail(self.costs.config(self.shape, len(self.stands)))

    def _leaves(self, groups: tuple[tuple[Run, ...], ...], place: int, step: int) -> list[float]:
        """Seconds that one microbatch's messages to the next (or previous) stage take to leave a node, by group."""
        if not 0 <= place + step < len(self.stands):
            return [0.0] * len(groups)
        return [self.costs.leaves(self.shape, group[place], group[place + step]) for group in groups]
