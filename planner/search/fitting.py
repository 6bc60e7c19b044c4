"""Some plan that memory has room for, found without a search for the fastest; or the layout that comes nearest to one.

Memory alone decides. Shapes are tried under the schedule that holds the fewest microbatches (1F1B, arXiv 2104.04473, section
2.2) unless one is pinned, with the optimizer state sharded and with the weights sharded too. Pipelines of whole stages stand
on sets of clusters, from the longest on; every place can have as many layers as fit beside what it holds in flight, and
layers go where most memory is left. What is found is built and weighed, so that it is a plan; that there is none is as true
as this search is wide: long pipelines are tried at some lengths only, and mixed stages not at all.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

from planner.costs.context import PlanningContext
from planner.costs.mixed_stages import MixedStageCosts
from planner.costs.node_classes import holds
from planner.placement.ranks import build
from planner.placement.simulation import fits
from planner.request import Request
from planner.space.device_slots import Run, level
from planner.space.shapes import Shape, searched, slots
from sim.errors import Infeasible, PlanError
from sim.hardware.cluster import Cluster
from sim.plan import schedules
from sim.plan.plan import Plan
from sim.units import Bytes

EVERY = 8
"""Places up to which pipelines of all lengths are tried; of longer ones each is half of the one before (a guess)."""

Pipeline: TypeAlias = tuple[Cluster, ...]
"""The cluster of every place."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """A layout and by how much its fullest stage exceeds the memory of its devices; not at all if it is not positive."""

    nbytes: Bytes
    shape: Shape
    pipeline: Pipeline
    layers: tuple[int, ...]
    stage: int


def fitting(request: Request, strategy: str = "fitting") -> Plan | None:
    """Some plan of whole stages that fits, not simulated; None where none is found."""
    room = _Room(request)
    for shape in _leanest(request):
        with suppress(PlanError):  # a schedule that is not defined for the numbers
            if room.at_most(shape) < request.workload.model.layers:
                continue
            for pipeline in _pipelines(request, shape, room):
                plan = _built(request, shape, pipeline, room, strategy)
                if plan is not None:
                    return plan
    return None


def _built(request: Request, shape: Shape, pipeline: Pipeline, room: _Room, strategy: str) -> Plan | None:
    """The plan of a pipeline, if it can be and fits."""
    layers = room.filled(shape, pipeline)
    if layers is not None:
        with suppress(PlanError):  # nothing joins its clusters
            places = tuple(zip((cluster.name for cluster in pipeline), layers, strict=True))
            plan = build(request, shape, places, strategy)
            return plan if fits(plan) else None
    return None


def nearest(request: Request) -> Shortage | None:
    """Of the longest pipelines of every shape the one that exceeds its memory least; None where no cluster holds a stage."""
    room, found = _Room(request), None
    for shape in _leanest(request):
        clusters = _able(request, shape)
        for some in [(cluster,) for cluster in clusters] + ([clusters] if len(clusters) > 1 else []):
            with suppress(PlanError):
                pipeline = next(_along(request, shape, some, room), None)
                shortage = room.shortage(shape, pipeline) if pipeline else None
                if shortage is not None and (found is None or shortage.nbytes < found.nbytes):
                    found = shortage
    return found


def _leanest(request: Request) -> list[Shape]:
    """Shapes that need least memory: the smallest microbatches, wide tensor groups first; under ZeRO 2 and 3 too."""
    found: dict[tuple[object, ...], Shape] = {}
    with suppress(Infeasible):
        for shape in searched(request):
            chunked = schedules.get(shape.schedule).CHUNKED  # it needs a number of microbatches that pp divides
            key = shape.tp, shape.dp, shape.cp, shape.ep, shape.recompute, chunked and shape.microbatch_size
            found.setdefault(key, shape)
    first = sorted(found.values(), key=lambda shape: (shape.microbatch_size, -shape.tp, -shape.ep, shape.cp, shape.dp))
    able = [shape for shape in first if request.wishes.zero_stage is None and shape.slots > 1]
    return first + [replace(shape, zero_stage=zero) for zero in (2, 3) for shape in able]


def _able(request: Request, shape: Shape) -> tuple[Cluster, ...]:
    """Clusters that can hold a stage."""
    return tuple(cluster for cluster in request.clusters() if holds(request, cluster, shape))


def _pipelines(request: Request, shape: Shape, room: _Room) -> Iterator[Pipeline]:
    """Pipelines on sets of up to three clusters in every order; of more, on the roomiest two, three and so on."""
    clusters = _able(request, shape)
    for one in clusters:
        yield from _along(request, shape, (one,), room)
    if len(clusters) <= 3:
        for size in range(2, len(clusters) + 1):
            for some in itertools.permutations(clusters, size):
                yield from _along(request, shape, some, room)
        return
    roomiest = sorted(clusters, key=lambda cluster: -cluster.node.device.memory)
    for size in range(2, len(clusters) + 1):
        yield from _along(request, shape, tuple(roomiest[:size]), room)


def _along(request: Request, shape: Shape, some: tuple[Cluster, ...], room: _Room) -> Iterator[Pipeline]:
    """Pipelines over these clusters in this order, a stage at least on each, the longest first."""
    capacity = [slots(cluster, shape.tp) // shape.slots for cluster in some]
    most, pinned, m = request.workload.model.layers // shape.vpp, request.wishes.pp, shape.microbatches(request.workload)
    for pp in _lengths(min(sum(capacity), most), pinned):
        if len(some) <= pp <= sum(capacity) and shape.places(m, pp) == pp:
            counts = room.shared(shape, some, capacity, pp)
            if counts:
                yield tuple(cluster for cluster, count in zip(some, counts, strict=True) for _ in range(count))


def _lengths(most: int, pinned: int | None) -> Iterator[int]:
    """Lengths of pipelines to try, the longest first."""
    if pinned is not None:
        yield from [pinned] if pinned <= most else []
        return
    while most > EVERY:
        yield most
        most //= 2
    yield from range(most, 0, -1)


class _Room:
    """Layers that the memory of places has room for."""

    def __init__(self, request: Request):
        self.workload = request.workload
        self.clusters = tuple(request.clusters())
        self._costs = MixedStageCosts(PlanningContext(request))
        self._most: dict[tuple[object, ...], int] = {}

    def at_most(self, shape: Shape) -> int:
        """No fewer layers than all stages of all clusters hold together: each but one microbatch, and no ends of the model."""
        if schedules.get(shape.schedule).CHUNKED:
            return self.workload.model.layers
        middle, total = (1, 3, 1), 0
        for cluster in self.clusters:
            if cluster.node.count >= shape.tp:
                alone = self._costs.most(shape, _stand(cluster, shape), 0, 1, 1)
                total += slots(cluster, shape.tp) // shape.slots * max(self._of(shape, cluster, *middle), alone)
        return total

    def most(self, shape: Shape, cluster: Cluster, place: int, pp: int) -> int:
        """Most layers of a place."""
        return self._of(shape, cluster, place, pp, shape.enough(shape.microbatches(self.workload), pp))

    def _of(self, shape: Shape, cluster: Cluster, place: int, pp: int, microbatches: int) -> int:
        held = schedules.in_flight(shape.schedule, place, pp, microbatches, shape.vpp)
        key = shape, cluster.name, held, place == 0, place == pp - 1
        if key not in self._most:
            self._most[key] = self._costs.most(shape, _stand(cluster, shape), place, pp, microbatches)
        return self._most[key]

    def shared(self, shape: Shape, some: tuple[Cluster, ...], capacity: list[int], pp: int) -> tuple[int, ...]:
        """Stages of each cluster of a pipeline of pp places, so that they have most room in all; empty where it cannot be.

        The best of the first j clusters on the first i places, for one j after the other.
        """
        if sum(capacity) == pp or len(some) == 1:
            return tuple(capacity) if sum(capacity) == pp else (pp,)
        best: dict[int, tuple[int, tuple[int, ...]]] = {0: (0, ())}
        for cluster, count in zip(some, capacity, strict=True):
            further: dict[int, tuple[int, tuple[int, ...]]] = {}
            for used, (total, counts) in best.items():
                for number in range(1, min(count, pp - used) + 1):
                    total += self.most(shape, cluster, used + number - 1, pp)
                    if used + number not in further or total > further[used + number][0]:
                        further[used + number] = total, (*counts, number)
            best = further
        return best[pp][1] if pp in best else ()

    def filled(self, shape: Shape, pipeline: Pipeline) -> tuple[int, ...] | None:
        """Layers of every place, where most memory is left; None where they do not fit."""
        pp, layers = len(pipeline), self.workload.model.layers
        most = [self.most(shape, cluster, place, pp) for place, cluster in enumerate(pipeline)]
        if min(most) < shape.vpp or sum(most) < layers:
            return None
        return level(self._bytes(shape, pipeline), most, layers, shape.vpp)

    def shortage(self, shape: Shape, pipeline: Pipeline) -> Shortage | None:
        """By how much the fullest place exceeds its memory, the layers being where most is left."""
        lines, layers = self._bytes(shape, pipeline), self.workload.model.layers
        split = level(lines, [layers] * len(pipeline), layers, shape.vpp)
        if split is None:
            return None
        over = [s + k * c for k, (s, c) in zip(split, lines, strict=True)]
        stage = max(range(len(over)), key=over.__getitem__)
        return Shortage(over[stage], shape, pipeline, split, stage)

    def _bytes(self, shape: Shape, pipeline: Pipeline) -> list[tuple[Bytes, Bytes]]:
        """(s, c) of every place: k layers need s + k c bytes more than there are; linear in k."""
        pp, found = len(pipeline), []
        m = shape.enough(shape.microbatches(self.workload), pp)
        for place, cluster in enumerate(pipeline):
            stand = _stand(cluster, shape)
            (one, limit), (two, _) = (self._costs.bytes_at(shape, stand, k, place, pp, m) for k in (1, 2))
            found.append((2 * one - two - limit, two - one))
        return found


def _stand(cluster: Cluster, shape: Shape) -> tuple[Run, ...]:
    return (Run(cluster, 0, shape.slots),)
