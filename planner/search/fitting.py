"""Some plan that fits memory, found without a search for the fastest; or the layout that comes nearest to fitting.

Only memory decides. Shapes are tried under the schedule that holds the fewest microbatches (1F1B, arXiv 2104.04473, section
2.2) unless one is pinned, with the optimizer state sharded, then with gradients and weights sharded too. Pipelines of whole
stages (each on one cluster) are tried on sets of clusters, the longest first. Each layer goes to the stage with most memory
left beside its microbatches in flight. The plan is built and its memory is checked. Where none is found, a plan may still fit:
of long pipelines only some lengths are tried, and mixed stages (on several clusters) are not tried at all."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

from planner.costs.context import PlanningContext
from planner.costs.mixed_stages import MixedStageCosts
from planner.costs.node_classes import holds, most_stages
from planner.placement.ranks import build
from planner.placement.simulation import fits
from planner.request import Request
from planner.search import kept_ranks
from planner.search.along_a_v import is_asked
from planner.search.along_a_v_fitting import some_plan
from planner.space import lengths, stand_in
from planner.space.device_slots import Run, minmax_layers
from planner.space.runnable import runs
from planner.space.shape import Shape
from planner.space.shapes import searched, variants
from sim.errors import Infeasible, NoRoute, NotDefined, PlanError
from sim.hardware.cluster import Cluster
from sim.plan import schedules
from sim.plan.plan import Plan
from sim.units import Bytes

EVERY = 8
"""Number of stages up to which pipelines of all lengths are tried; longer lengths are halved repeatedly (a guess). A larger
number finds a plan in more cases, and takes longer where there is none."""

Clusters: TypeAlias = tuple[Cluster, ...]
"""The cluster of each stage of a pipeline."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """A layout, and the bytes by which its fullest stage exceeds the memory of its devices; at most 0 where it fits."""

    nbytes: Bytes
    shape: Shape
    pipeline: Clusters
    layers: tuple[int, ...]
    stage: int


def fitting(request: Request, strategy: str = "fitting") -> Plan | None:
    """Some plan of whole stages that fits memory, not simulated; None where none is found."""
    if kept_ranks.is_asked(request):
        return kept_ranks.some_plan(request)
    if is_asked(request):
        return some_plan(request)
    if not request.workload.model.is_uniform:
        return _of_unlike_layers(request, strategy)
    memory = _Memory(request)
    for shape in _leanest(request):
        if memory.total(shape) < request.workload.model.layers:
            continue
        for pipeline in _pipelines(request, shape, memory):
            plan = _built(request, shape, pipeline, memory, strategy)
            if plan is not None:
                return plan
    return None


def _of_unlike_layers(request: Request, strategy: str) -> Plan | None:
    """`fitting` for a model whose layers differ: a plan of a model of equal layers with more parameters, with its own
    layers."""
    for part in stand_in.stand_ins(request):
        plan = fitting(part, strategy)
        with suppress(Infeasible):
            own = stand_in.of_model(plan, request) if plan is not None else None
            if own is not None and fits(own) and not request.refuses(own):
                return own
    return None


def _built(request: Request, shape: Shape, pipeline: Clusters, memory: _Memory, strategy: str) -> Plan | None:
    """The plan of a pipeline; None where it cannot be built or does not fit."""
    layers = memory.filled(shape, pipeline)
    if layers is not None:
        with suppress(NoRoute, NotDefined):
            stages = tuple(zip((cluster.name for cluster in pipeline), layers, strict=True))
            plan = build(request, shape, stages, strategy)
            return plan if fits(plan) else None
    return None


def nearest(request: Request) -> Shortage | None:
    """The layout that exceeds memory least among the longest pipelines of each shape; None where no cluster holds a stage.

    Pipelines are tried on each cluster alone and on all of them."""
    memory, best = _Memory(request), None
    for shape in _leanest(request):
        clusters = _able(request, shape)
        for some in [(cluster,) for cluster in clusters] + ([clusters] if len(clusters) > 1 else []):
            pipeline = next(_along(request, shape, some, memory), None)
            shortage = memory.shortage(shape, pipeline) if pipeline else None
            if shortage is not None and (best is None or shortage.nbytes < best.nbytes):
                best = shortage
    return best


def _leanest(request: Request) -> list[Shape]:
    """Shapes that need least memory: the smallest microbatches, wide tensor groups first; then the same under ZeRO 2 and 3."""
    shapes: dict[tuple[object, ...], Shape] = {}
    with suppress(Infeasible):
        for shape in (one for base in searched(request) for one in base.extremes):
            any_number = schedules.whole_rounds(shape.schedule) is False  # else pp must divide the number of microbatches
            key = shape.tp, shape.dp, shape.cp, shape.ep, shape.etp, shape.recompute, not any_number and shape.microbatch_size
            shapes.setdefault(key, shape)
    first = sorted(shapes.values(), key=lambda shape: (shape.microbatch_size, -shape.tp, -shape.ep, shape.cp, shape.dp))
    able = [shape for shape in first if request.wishes.zero_stage is None and shape.slots > 1]
    every = first + [replace(shape, zero_stage=zero) for zero in (2, 3) for shape in able]
    if not any(map(request.limits.allows_shape, every)):  # such as with a limit of vpp
        every = [variant for shape in first for variant in itertools.islice(variants(request, shape), 1)]
    return [shape for shape in every if request.limits.allows_shape(shape) and _is_consistent(request, shape)]


def _is_consistent(request: Request, shape: Shape) -> bool:
    """Whether the pins of a request agree, such as schedule with vpp; `planner.diagnosis.remedies` tries some that do not."""
    try:
        shape.config(request.workload, 1)
    except PlanError:
        return False
    return True


def _able(request: Request, shape: Shape) -> Clusters:
    """Clusters that can hold a stage."""
    return tuple(cluster for cluster in request.clusters() if holds(request, cluster, shape))


def _pipelines(request: Request, shape: Shape, memory: _Memory) -> Iterator[Clusters]:
    """Pipelines on sets of up to three clusters in every order; of more clusters, on the two, three, ... with the largest
    memory."""
    clusters = _able(request, shape)
    for one in clusters:
        yield from _along(request, shape, (one,), memory)
    if len(clusters) <= 3:
        for size in range(2, len(clusters) + 1):
            for some in itertools.permutations(clusters, size):
                yield from _along(request, shape, some, memory)
        return
    by_memory = sorted(clusters, key=lambda cluster: -cluster.node.device.memory)
    for size in range(2, len(clusters) + 1):
        yield from _along(request, shape, tuple(by_memory[:size]), memory)


def _along(request: Request, shape: Shape, some: Clusters, memory: _Memory) -> Iterator[Clusters]:
    """Pipelines over these clusters in this order, with a stage or more on each, the longest first."""
    names, limits = [cluster.name for cluster in some], request.limits
    if not (limits.allows_ends(names[0], names[-1]) and limits.uses_enough(names)):
        return
    capacity = [most_stages(request, cluster, shape) for cluster in some]
    most, m = request.workload.model.layers // shape.vpp, shape.microbatches(request.workload)
    for pp in _lengths(min(sum(capacity), most, lengths.longest(request, shape) or most), request.wishes.pp):
        if len(some) <= pp <= sum(capacity) and shape.is_defined(m, pp) and _allows(request, shape, pp):
            counts = memory.stage_counts(shape, some, capacity, pp)
            if counts and limits.allows_nodes(request.topology.fleet, shape, dict(zip(names, counts, strict=True))):
                yield tuple(cluster for cluster, count in zip(some, counts, strict=True) for _ in range(count))


def _allows(request: Request, shape: Shape, pp: int) -> bool:
    return lengths.allows(request, shape, pp) and runs(request, shape, pp)


def _lengths(most: int, pinned: int | None) -> Iterator[int]:
    """Lengths of pipelines to try, the longest first."""
    if pinned is not None:
        yield from [pinned] if pinned <= most else []
        return
    while most > EVERY:
        yield most
        most //= 2
    yield from range(most, 0, -1)


class _Memory:
    """Number of layers that fit in the memory of stages."""

    def __init__(self, request: Request):
        self.workload, self._request = request.workload, request
        self.clusters = tuple(request.clusters())
        self._costs = MixedStageCosts(PlanningContext(request))
        self._most: dict[tuple[object, ...], int] = {}

    def total(self, shape: Shape) -> int:
        """An upper bound of the layers that all stages of all clusters hold: one microbatch in flight, no embedding or head."""
        if schedules.get(shape.schedule).CHUNKED:
            return self.workload.model.layers
        middle, total = (1, 3, 1), 0
        for cluster in self.clusters:
            if cluster.node.count >= shape.tp:
                alone = self._costs.most(shape, _first_slots(cluster, shape), 0, 1, 1)
                total += most_stages(self._request, cluster, shape) * max(self._of(shape, cluster, *middle), alone)
        return total

    def most(self, shape: Shape, cluster: Cluster, stage: int, pp: int) -> int:
        """Maximum number of layers of a stage on a cluster."""
        return self._of(shape, cluster, stage, pp, shape.microbatches(self.workload))

    def _of(self, shape: Shape, cluster: Cluster, stage: int, pp: int, microbatches: int) -> int:
        held = schedules.in_flight(shape.schedule, stage, pp, microbatches, shape.vpp)
        key = shape, cluster.name, held, stage == 0, stage == pp - 1
        if key not in self._most:
            self._most[key] = self._costs.most(shape, _first_slots(cluster, shape), stage, pp, microbatches)
        return self._most[key]

    def stage_counts(self, shape: Shape, some: Clusters, capacity: list[int], pp: int) -> tuple[int, ...]:
        """Stages of each cluster in a pipeline of pp stages, so that all stages together hold most layers, and each stage that
        is kept on a cluster is on it; empty where no such pipeline exists.

        Dynamic programming over the clusters: the best counts of the first clusters for each number of stages on them."""
        kept = [(number if number >= 0 else pp + number, name) for number, name in self._request.limits.stages]
        if any(not 0 <= number < pp or name not in {cluster.name for cluster in some} for number, name in kept):
            return ()
        if not kept and (sum(capacity) == pp or len(some) == 1):
            return tuple(capacity) if sum(capacity) == pp else (pp,)
        best: dict[int, tuple[int, tuple[int, ...]]] = {0: (0, ())}
        for cluster, count in zip(some, capacity, strict=True):
            further: dict[int, tuple[int, tuple[int, ...]]] = {}
            for used, (total, counts) in best.items():
                for number in range(1, min(count, pp - used) + 1):
                    total += self.most(shape, cluster, used + number - 1, pp)
                    if any(used <= at < used + number and name != cluster.name for at, name in kept):
                        break
                    if used + number not in further or total > further[used + number][0]:
                        further[used + number] = total, (*counts, number)
            best = further
        return best[pp][1] if pp in best else ()

    def filled(self, shape: Shape, pipeline: Clusters) -> tuple[int, ...] | None:
        """Layers of each stage, each assigned to the stage with most memory left; None where they do not fit."""
        pp, layers = len(pipeline), self.workload.model.layers
        most = [self.most(shape, cluster, stage, pp) for stage, cluster in enumerate(pipeline)]
        if min(most) < shape.vpp or sum(most) < layers:
            return None
        return minmax_layers(self._bytes(shape, pipeline), most, layers, shape.vpp)

    def shortage(self, shape: Shape, pipeline: Clusters) -> Shortage | None:
        """By how much the fullest stage exceeds its memory, with each layer on the stage with most memory left; None for too
        few layers."""
        linear, layers = self._bytes(shape, pipeline), self.workload.model.layers
        split = minmax_layers(linear, [layers] * len(pipeline), layers, shape.vpp)
        if split is None:
            return None
        over = [s + k * c for k, (s, c) in zip(split, linear, strict=True)]
        stage = max(range(len(over)), key=over.__getitem__)
        return Shortage(over[stage], shape, pipeline, split, stage)

    def _bytes(self, shape: Shape, pipeline: Clusters) -> list[tuple[Bytes, Bytes]]:
        """(s, c) of each stage: k layers exceed its memory by s + k c bytes, linear in k."""
        pp, linear = len(pipeline), []
        m = shape.microbatches(self.workload)
        for stage, cluster in enumerate(pipeline):
            placed = _first_slots(cluster, shape)
            (one, limit), (two, _) = (self._costs.bytes_at(shape, placed, k, stage, pp, m) for k in (1, 2))
            linear.append((2 * one - two - limit, two - one))
        return linear


def _first_slots(cluster: Cluster, shape: Shape) -> tuple[Run, ...]:
    """The slots of the first stage of a cluster, as `MixedStageCosts` takes them."""
    return (Run(cluster, 0, shape.slots),)
