"""The deadline test of plans with mixed stages: a lower bound on the step of the plans that `planner.search.mixed` can build.

A mixed stage has replicas on several clusters. A placement fixes the slots of every replica of every stage. The layers of a
stage, the microbatches of a replica and the schedule are free. In T seconds, a replica processes at most
floor((T - fill - tail) / (s + k c)) microbatches on a stage of k layers, where s + k c are its seconds for one microbatch. The
replicas of a stage together must process all microbatches, which bounds k from above. As in `planner.bounds.greedy_filling`,
stages are filled from the last to the first; if layers are left over, no plan of the placement finishes within T. The exchange
argument given there needs feasibility that is monotone in k, so the tail is the least one of this and all larger sizes that
compute in time.

Every simplification is a relaxation. Messages count only as a limit on the microbatches of a replica: in T seconds, no more can
leave a node, in both directions, than its links carry. Latency and the all-to-all of experts do not count. Each stage may
distribute the microbatches over its replicas independently.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate

from planner.bounds.deadline_test import PRECISE
from planner.bounds.total_work import Work
from planner.costs.context import PlanningContext
from planner.costs.mixed_stages import MixedStageCosts
from planner.space.device_slots import Run, StageSlots, distinct_offsets, replica_groups
from planner.space.shape import Shape, split_backward
from planner.space.shapes import slots
from planner.time_limit import TimeLimit
from sim.errors import NoRoute, NotModelled
from sim.units import Seconds


def mixed_bound(
    context: PlanningContext, placements: Iterable[tuple[Shape, tuple[StageSlots, ...]]], cutoff: float, limit: TimeLimit
) -> float | None:
    """A lower bound in seconds on the step of all plans of the placements, at most `cutoff`; None where the time is up first.

    It is the least over the placements; each is a bisection to the relative width `PRECISE`."""
    costs, bound, shares, work = MixedStageCosts(context), cutoff, dict[Shape, float](), Work(context)
    for shape, placed in placements:
        if limit.is_up():
            return None
        if work.bound(shape) >= bound:
            continue
        one = split_backward(shape)
        with suppress(NoRoute, NotModelled):  # planner.search.mixed builds no plan of these either
            stages = _PlacedStages(costs, one, placed)
            if not stages.within(bound, 0.0):
                continue
            if one not in shares:
                shares[one] = min(
                    forward / (forward + backward)
                    for cluster in context.request.clusters()
                    if slots(cluster, one.tp) >= one.cp
                    for run in distinct_offsets(Run(cluster, 0, slots(cluster, one.tp)), one.tp, one.cp)
                    for (_, forward), (_, backward) in [costs.own_passes(one, run, (False, False))]
                )
            low, high = 0.0, bound
            if stages.within(bound, shares[one]):
                while high - low > PRECISE * high:
                    middle = (low + high) / 2
                    low, high = (low, middle) if stages.within(middle, shares[one]) else (middle, high)
                bound = low
    return bound


class _PlacedStages:
    """Placed stages, and the speed of each group of identically placed replicas on each stage.

    Raises NoRoute or NotModelled where no plan has this placement."""

    def __init__(self, costs: MixedStageCosts, shape: Shape, placed: tuple[StageSlots, ...]):
        self.costs, self.shape, self.placed = costs, shape, placed
        self.layers = costs.workload.model.layers
        self.total = costs.workload.global_batch_size // shape.microbatch_size
        self.ends = [(stage == 0, stage == len(placed) - 1) for stage in range(len(placed))]
        groups = replica_groups(placed, shape.cp)
        self.counts = [group[0].count // shape.cp for group in groups]
        ahead, back = ([self._leaves(groups, stage, step) for stage in range(len(placed))] for step in (1, -1))
        self.lanes = [[a + b for a, b in zip(*both, strict=True)] for both in zip(ahead, back, strict=True)]
        self.seconds_of = [
            [costs.least_seconds(shape, group[stage], end) for group in groups] for stage, end in enumerate(self.ends)
        ]
        layer = [[each for _, each in seconds] for seconds in self.seconds_of]
        least = accumulate(layer[:-1], lambda before, here: [*map(min, before, here)])
        self.layer_before = [[0.0] * len(groups), *least]
        """For each stage and group, the least seconds of a layer on the stages before."""

    def within(self, seconds: float, forward: float) -> bool:
        """Whether some plan of the placement might finish within `seconds` (False is a proof that none does).

        forward: least fraction of a layer's seconds that is its forward; 0 leaves out fill, tails, memory and messages
        (quick)."""
        left = self.layers
        for stage in reversed(range(len(self.placed))):
            held = self._most_layers(stage, left, seconds, forward)
            if not held:
                return False
            left -= held
            if left <= 0:
                return True
        return False

    def _most_layers(self, stage: int, left: int, seconds: float, forward: float) -> int:
        """Most layers of a stage, with `left` layers in it and before it; 0 where it cannot hold one."""
        sizes = range(1, self.layers + 1)
        by_compute = bisect.bisect_left(sizes, True, key=lambda k: not self._holds(stage, k, 0, seconds, seconds, 0.0))
        if not forward:
            return min(by_compute, left)
        most, tail = min(left, self._most_by_memory(stage)), math.inf
        for k in range(by_compute, 0, -1):
            tail = min(tail, self._tail(stage, k))
            if k <= most and self._holds(stage, k, left - k, seconds, seconds - tail, forward):
                return k
        return 0

    def _most_by_memory(self, stage: int) -> int:
        shape = replace(self.shape, schedule="1f1b")
        return self.costs.most(shape, self.placed[stage], stage, len(self.placed), 1)

    def _holds(self, stage: int, k: int, before: int, seconds: float, until: float, forward: float) -> bool:
        """Whether the replicas of a stage of k layers, with `before` layers before it, have time for all microbatches.

        The last backward ends by `until`; the messages have `seconds`."""
        done = 0
        groups = self.counts, self.seconds_of[stage], self.layer_before[stage], self.lanes[stage]
        for count, (start, each), ahead, lane in zip(*groups, strict=True):
            times = math.floor((until - forward * before * ahead) / (start + k * each))
            if forward and lane:
                times = min(times, math.floor(seconds / lane))
            done += count * max(times, 0)
        return done >= self.total

    def _tail(self, stage: int, k: int) -> Seconds:
        """Seconds of a stage of k layers after its last backward."""
        cost = self.costs.cost(self.shape, self.placed[stage], k, self.ends[stage])
        return cost.tail(self.costs.config(self.shape, len(self.placed)))

    def _leaves(self, groups: tuple[tuple[Run, ...], ...], stage: int, step: int) -> list[float]:
        """Seconds that one microbatch's messages to the next (or previous) stage take to leave a node, by group."""
        if not 0 <= stage + step < len(self.placed):
            return [0.0] * len(groups)
        return [self.costs.leaves(self.shape, group[stage], group[stage + step]) for group in groups]
