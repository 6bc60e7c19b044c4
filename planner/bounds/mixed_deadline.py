"""The deadline test of plans with mixed stages: a lower bound on the step of the plans that `planner.search.mixed` can build.

A mixed stage has replicas on several clusters. A placement fixes the slots of every replica of every stage. The layers of a
stage, the microbatches of a replica and the schedule are free. A replica takes cycle = s + k c seconds for one microbatch on a
stage of k layers; with fill and drain as in `planner.bounds.deadline_test`, it processes at most

    floor((T - fill - tail) / cycle)     and, where no schedule splits the backward,     floor((T - fill - drain) / cycle)

microbatches in T seconds. The replicas of a stage together must process all microbatches, which bounds k from above. As in
`planner.bounds.greedy_filling`, stages are filled from the last to the first; if layers are left over, no plan of the placement
finishes within T. The exchange argument given there needs feasibility that is monotone in k, so the tail is the least one of
this and all larger sizes that compute in time.

Messages: where every schedule waits until a message has left, those of a microbatch are part of its cycle, of fill and of
drain. The replicas of a group that one node holds at every stage keep step, so their messages share links (`alike_replicas`).
Else messages count only as a limit on the microbatches of a replica: in T seconds, no more can leave a node, in both
directions, than its links carry.

Gradients and weights: several stages on one node share its links. A link takes some seconds for them, apart from all
microbatches but one of each replica on the last of these stages (`planner.costs.mixed_rings`). That is a second limit on its
microbatches.

Every simplification is a relaxation: latency of overlapped messages and the all-to-all of experts do not count. Each stage may
distribute the microbatches over its replicas independently.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from planner.bounds.deadline_test import PRECISE
from planner.bounds.total_work import Work
from planner.costs.context import PlanningContext
from planner.costs.mixed_rings import Load, least_seconds
from planner.costs.mixed_stages import MixedStageCosts
from planner.costs.stage_positions import alike_replicas
from planner.space.device_slots import Run, StageSlots, distinct_offsets, replica_groups
from planner.space.mixed_schedules import playable, variants_of_mixed
from planner.space.shape import Shape, split_backward
from planner.space.shapes import slots
from planner.time_limit import TimeLimit
from sim.errors import NoRoute, NotModelled
from sim.plan.schedules import Schedule
from sim.units import Seconds


def mixed_bound(
    context: PlanningContext, placements: Iterable[tuple[Shape, tuple[StageSlots, ...]]], cutoff: float, limit: TimeLimit
) -> float | None:
    """A lower bound in seconds on the step of all plans of the placements, at most `cutoff`; None where the time is up first.

    It is the least over the placements; each is a bisection to the relative width `PRECISE`."""
    costs, bound, shares, work = MixedStageCosts(context), cutoff, dict[Shape, float](), Work(context)
    known: dict[tuple[Shape, bool], list[Schedule]] = {}
    for shape, placed in placements:
        if limit.is_up():
            return None
        if work.bound(shape) >= bound:
            continue
        one, several = split_backward(shape), len(placed) > 1
        if (one, several) not in known:
            known[one, several] = playable(context.request, shape, several)
        kinds = known[one, several]
        if not kinds:
            continue
        with suppress(NoRoute, NotModelled):  # planner.search.mixed builds no plan of these either
            stages = _PlacedStages(costs, one, placed, kinds)
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

    `kinds`: the schedules that a plan may have. Raises NoRoute or NotModelled where no plan has this placement."""

    def __init__(self, costs: MixedStageCosts, shape: Shape, placed: tuple[StageSlots, ...], kinds: Iterable[Schedule]):
        self.costs, self.shape, self.placed, kinds = costs, shape, placed, list(kinds)
        self.waits = not any(kind.OVERLAPS_SENDS for kind in kinds)
        self.drains = not any(kind.SPLITS_BACKWARD for kind in kinds)
        self.layers = costs.workload.model.layers
        self.total = costs.workload.global_batch_size // shape.microbatch_size
        self.ends = [(stage == 0, stage == len(placed) - 1) for stage in range(len(placed))]
        self.groups = [self._group(runs) for runs in replica_groups(placed, shape.cp)]

    @functools.cached_property
    def links(self) -> tuple[tuple[Load, ...], ...]:
        """The links that gradients and weights load; none where a schedule splits the backward, or plans may have several ZeRO
        stages."""
        variants = {one.zero_stage: one for one in variants_of_mixed(self.costs.context.request, self.shape)}
        if not self.drains or len(variants) != 1:
            return ()
        return self.costs.rings.loads(next(iter(variants.values())), self.placed).links

    @functools.cached_property
    def ending(self) -> dict[int, list[tuple[Load, ...]]]:
        """Last stage -> the links that it and stages before it load."""
        found: dict[int, list[tuple[Load, ...]]] = {}
        for link in self.links:
            found.setdefault(link[-1][0], []).append(link)
        return found

    def _group(self, runs: tuple[Run, ...]) -> list[_OnStage]:
        """The replicas of a group on each stage."""
        costs, shape, last = self.costs, self.shape, len(runs) - 1
        alike = alike_replicas(runs, shape.tp) if self.waits else 1
        found: list[_OnStage] = []
        ahead = arrived = returned = 0.0
        before = math.inf
        for stage, run in enumerate(runs):
            start, each = costs.least_seconds(shape, run, self.ends[stage])
            there, back = (
                self._message(run, runs[stage + step], alike) if 0 <= stage + step <= last else 0.0 for step in (1, -1)
            )
            arrived, returned = arrived + ahead, returned + back
            least = before if stage else 0.0
            messages = (there + back, 0.0, arrived, arrived + returned - back) if self.waits else (0.0, there + back, 0.0, 0.0)
            found.append(_OnStage(run.count // shape.cp, start, each, least, *messages))
            ahead, before = there, min(before, each)
        return found

    def _message(self, run: Run, other: Run, alike: int) -> Seconds:
        """Seconds of a message from a run to another one: until it has left, or the load of a link."""
        if self.waits:
            return self.costs.sent(self.shape, run, other, alike)
        return self.costs.leaves(self.shape, run, other)

    def within(self, seconds: float, forward: float) -> bool:
        """Whether some plan of the placement might finish within `seconds` (False is a proof that none does).

        forward: least fraction of a layer's seconds that is its forward; 0 leaves out fill, drain, tails and memory (quick)."""
        stages, left = range(len(self.placed)), self.layers
        computed = [self._most_by_compute(stage, seconds) for stage in stages]
        for stage in reversed(stages):
            held = self._most_layers(stage, left, seconds, forward, computed)
            if not held:
                return False
            left = max(left - held, stage)  # the stages before have a layer each
        return left <= 0

    def _most_layers(self, stage: int, left: int, seconds: float, forward: float, computed: Sequence[int]) -> int:
        """Most layers of a stage, with `left` layers in it and before it; 0 where it cannot hold one."""
        if not forward:
            return min(computed[stage], left)
        most, tail, apart = min(left, self._most_by_memory(stage)), math.inf, math.inf
        for k in range(computed[stage], 0, -1):
            tail = min(tail, self._tail(stage, k))
            apart = min(apart, self._apart(stage, k, computed))
            if k <= most and self._holds(stage, k, left - k, seconds, tail, forward, apart):
                return k
        return 0

    def _most_by_compute(self, stage: int, seconds: float) -> int:
        """Most layers of a stage by the cycles of all microbatches alone."""
        sizes = range(1, self.layers + 1)
        return bisect.bisect_left(sizes, True, key=lambda k: not self._holds(stage, k, 0, seconds, 0.0, 0.0, 0.0))

    def _most_by_memory(self, stage: int) -> int:
        shape = replace(self.shape, schedule="1f1b")
        return self.costs.most(shape, self.placed[stage], stage, len(self.placed), 1)

    def _apart(self, stage: int, k: int, most: Sequence[int]) -> Seconds:
        """Least seconds of a link, whose last stage this is, for gradients and weights: apart from all microbatches but one.

        The other stages of the link have the layers that neither this one nor those which do not load it can hold."""
        found = 0.0
        for link in self.ending.get(stage, ()):
            outside = sum(most) - sum(most[i] for i, _, _ in link)
            found = max(found, least_seconds(link, k, self.layers - k - outside))
        return found

    def _holds(self, stage: int, k: int, before: int, seconds: float, tail: float, forward: float, apart: float) -> bool:
        """Whether the replicas of a stage of k layers, with `before` layers before it, have time for all microbatches and the
        tail. `forward`: as in `within`; `apart`: seconds apart from all microbatches but one."""
        done = 0
        for group in self.groups:
            here = group[stage]
            until, both = seconds, here.layer_before * before
            if forward:
                until -= here.arrived + both * forward + tail
                if self.drains:
                    until = min(until, seconds - both - here.drained)
            cycle = here.start + k * here.each + here.sent
            times = min(math.floor(until / cycle), 1 + math.floor((seconds - apart) / cycle))
            if forward and here.lane:
                times = min(times, math.floor(seconds / here.lane))
            done += here.replicas * max(times, 0)
        return done >= self.total

    def _tail(self, stage: int, k: int) -> Seconds:
        """Seconds of a stage of k layers after its last backward, behind which less reduction is left than behind a weight
        gradient alone."""
        cost = self.costs.cost(self.shape, self.placed[stage], k, self.ends[stage]).sending(0.0, 0.0, 0.0, 0.0)
        return cost.tail(self.costs.config(self.shape, len(self.placed)))


class _OnStage(NamedTuple):
    """A group of `replicas` on a stage of a pipeline.

    A stage of k layers takes start + k each seconds for a microbatch; a layer of the stages before takes at least
    `layer_before`. Messages of a microbatch, in seconds: `sent`, where ranks wait until they have left, else the `lane` that
    they load; where ranks wait, also those of the first microbatch up to this stage (`arrived`), and with them those of the
    last one from the stage before back to the first (`drained`)."""

    replicas: int
    start: Seconds
    each: Seconds
    layer_before: Seconds
    sent: Seconds
    lane: Seconds
    arrived: Seconds
    drained: Seconds
