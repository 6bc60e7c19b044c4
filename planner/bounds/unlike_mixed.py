"""The deadline test of mixed stages of a model whose layers differ: work, memory, fill and drain of stages on several clusters.

Where all replicas have equally many microbatches, a mixed stage is as slow as its slowest replica, and has the layers that the
least of its devices hold. Take the clusters in any order, and label each stage with the last one that it has devices on. The
stage is then at least as slow as one on that cluster alone, and has no more layers. The stages with one of the first j labels
have all their slots on the first j clusters: there are at most (slots of these clusters) / (slots of a stage) of them. So the
deadline test of `planner.bounds.unlike_deadline` holds for these plans if it counts the stages of the first clusters together.
At least one stage is mixed, or the plan is one of whole stages: for some j, it has slots on the first j clusters and on others.
Then the stages that are on the first j clusters alone have a slot less.

The order is that of speed. Messages, exchanges of experts and gradients are left out."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TypeAlias

from planner.bounds.unlike_deadline import least_seconds
from planner.bounds.unlike_work import UnlikeWork
from planner.costs.context import PlanningContext
from planner.costs.unlike_layers import KindSeconds, UnlikeCosts, UnlikeStages
from planner.request import Request
from planner.space import stand_in
from planner.space.mixed_schedules import playable_variants, runs_alike
from planner.space.shape import Shape
from planner.space.shapes import searched, slots
from planner.time_limit import TimeLimit
from sim.errors import Infeasible
from sim.hardware.cluster import Cluster
from sim.plan import schedules
from sim.units import Seconds


class LabelledStages(UnlikeStages):
    """Stages whose last cluster in an order is this one; `max_stages`: most stages on the clusters up to it."""

    def __init__(self, costs: UnlikeCosts, cluster: Cluster, shape: Shape, both: tuple[Seconds, ...]):
        super().__init__(costs, cluster, shape)
        splits = schedules.get(shape.schedule).SPLITS_BACKWARD
        self.kinds = tuple(KindSeconds(0.0, 0.0, seconds, 0.0 if splits else seconds) for seconds in both)

    def kind_seconds(self, alone: bool = False) -> tuple[KindSeconds, ...]:
        """Least seconds of a layer of each kind: of the compute and the tensor-parallel collectives of one replica."""
        return self.kinds


Across: TypeAlias = tuple[Seconds, Request, Shape]
"""A total-work bound, the stand-in, and the shape whose stages may be on several clusters."""


def shapes_across(context: PlanningContext, work: UnlikeWork) -> Iterator[Across]:
    """The shapes whose stages may be on several clusters, with their total-work bounds; none on one cluster."""
    if all(len(clusters) < 2 for clusters in context.request.joinable()):
        return
    for part in stand_in.stand_ins(context.request):
        with suppress(Infeasible):
            yield from ((work.bound(shape), part, shape) for shape in searched(part, across=True))


def least_of_mixed(
    costs: UnlikeCosts, work: UnlikeWork, across: Sequence[Across], cutoff: Seconds, limit: TimeLimit
) -> Seconds:
    """A lower bound in seconds on all plans with mixed stages: the least of their shapes; infinite where there are none.

    The shapes with the least bounds are bounded more closely, up to `cutoff`, as long as there is time."""
    queue = [(bound, index, False) for index, (bound, _, _) in enumerate(across)]
    heapq.heapify(queue)
    while queue:
        bound, index, is_close = heapq.heappop(queue)
        if is_close or bound >= cutoff or limit.is_up():
            return bound
        _, part, shape = across[index]
        heapq.heappush(queue, (mixed_seconds(costs, work, part, shape, bound, cutoff), index, True))
    return math.inf


def mixed_seconds(costs: UnlikeCosts, work: UnlikeWork, part: Request, shape: Shape, low: Seconds, high: Seconds) -> Seconds:
    """A lower bound in seconds, at least `low` and at most `high`, on the plans of a shape whose stages may be mixed.

    low: a lower bound. Nothing above it is known where replicas may have unlike numbers of microbatches."""
    both = {one: list(playable_variants(part, shape, several=one > 1)) for one in (1, 2)}  # of one stage, and of several
    able = {pp: [schedules.get(one.schedule) for one in some] for pp, some in both.items()}
    if not shape.divides(part.workload) or not all(runs_alike(part, shape, pp, some) for pp, some in able.items()):
        return low
    found = high
    for variant in {(one.schedule, one.zero_stage): one for some in both.values() for one in some}.values():
        if found <= low:
            break
        for parted in range(sum(1 for _ in costs.context.request.clusters()) - 1):
            classes = list(_labelled(costs, work, variant, parted))
            if classes:
                found = min(found, least_seconds(part, variant, classes, low, found, nested=True))
    return found


def _labelled(costs: UnlikeCosts, work: UnlikeWork, shape: Shape, parted: int) -> Iterator[LabelledStages]:
    """The clusters with slots of a shape, the fastest first; a stage is mixed of those up to number `parted` and of others."""
    request = costs.context.request
    able = [cluster for cluster in request.clusters() if cluster.node.count >= shape.tp_on(cluster.name)]
    timed = [(work.seconds(cluster, shape.on(cluster.name)), cluster) for cluster in able]
    many = 0
    for number, (both, cluster) in enumerate(sorted(timed, key=lambda one: sum(one[0]))):
        many += slots(cluster, shape.tp_on(cluster.name))
        if math.isfinite(sum(both)):
            one = LabelledStages(costs, cluster, shape, both)
            one.max_stages = (many - (number == parted)) // shape.slots
            yield one
