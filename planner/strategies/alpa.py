"""alpa: layers and machines divided into stages by a dynamic programme, under a bound on the slowest stage.

Alpa (Zheng et al., arXiv 2201.12023, section 5): with B microbatches and t_i seconds of one of them on stage i, choose stages
(an interval of layers on a submesh each) that minimise T = sum of t_i + (B - 1) max t_i. For each bound t_max a dynamic
programme over (stages to the end, layers left, machines left) finds the least sum of stages that take t_max at most and whose
activations fit: s microbatches of them, s stages before the end. t_max goes up through all values until no larger one can win.

A plan has one tp and dp for all stages, so that every submesh is dp x tp devices of one cluster: the programme says where each
stage stands and how many layers it has, and one is solved for each shape, which Alpa would leave to its intra-operator pass.
Clusters stand one after the other along the pipeline, in every order of up to three of them, else as listed and in reverse.
Stages of other shapes in one plan, and sharding operator by operator, are left out. As in Alpa, messages between stages cost
nothing (section 7, limitations), and t has its share of the gradients' synchronisation, spread over the microbatches. Memory
in flight is that of 1F1B or of GPipe; where another schedule needs more, the plan is dropped. The best of this ranking that fit
are simulated by the engine, and the fastest is the answer."""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass
from planner.placement.ranks import build
from planner.placement.simulation import fastest
from planner.request import Request
from planner.space.shapes import Shape, shapes, slots
from sim.analytic.costs import compute_seconds
from sim.errors import Infeasible
from sim.hardware.cluster import Cluster
from sim.plan.plan import Plan
from sim.units import Seconds

RANKED = 12
PLAYED = 4
CELLS = 150_000_000
CELLS_PER_DEVICE = 2_000
RANKS = 12_000
"""So many cells of the programme's tables are filled at most, a few seconds on any machine; looking up what a device of a stage
has to say counts as so many. Plans of so many ranks in all are built, but one at least."""

Stages: TypeAlias = tuple[tuple[int, int], ...]
Table: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Submeshes:
    """What the submeshes of a cluster offer: `capacity` of them.

    `first[s, k]` and `other[s, k]` are the seconds t of k layers that stand s stages before the end of the pipeline (the last
    stage has s = 1), as first stage and as any other; infinite where s microbatches of them do not fit.
    """

    capacity: int
    first: Table
    other: Table

    def under(self, bound: Seconds) -> Submeshes:
        """The same without stages that take longer than a bound."""
        return Submeshes(self.capacity, *(np.where(t <= bound, t, np.inf) for t in (self.first, self.other)))


@dataclass(slots=True)
class Work:
    """Cells of tables filled so far, and when to stop for want of time."""

    deadline: float
    cells: int = 0

    @property
    def is_over(self) -> bool:
        """Whether the work or the time allowed is used up."""
        return self.cells > CELLS or time.monotonic() > self.deadline


def plan(request: Request, context: PlanningContext) -> Plan:
    """The fastest of the plans that the dynamic programme ranks first. Raises Infeasible where none fits."""
    work = Work(time.monotonic() + request.time_limit)
    ranked = _ranked(request, context, work)
    simulated = max(1, min(PLAYED, RANKS // request.topology.fleet.devices))
    best = fastest((partial(build, request, shape, stages, "alpa") for _, shape, stages in ranked), simulated, simulated)
    if best is None:
        raise Infeasible("alpa: no division of the layers over submeshes of dp x tp devices fits the memory and the batch")
    return best


def _ranked(request: Request, context: PlanningContext, work: Work) -> list[tuple[Seconds, Shape, tuple[tuple[str, int], ...]]]:
    """(T, shape, stages) of the best divisions, the best first; shapes that promise most are divided first."""
    found: list[tuple[Seconds, Shape, tuple[tuple[str, int], ...]]] = []
    todo: list[tuple[Seconds, int, Shape, list[NodeClass] | None]] = []
    for index, shape in enumerate(shapes(request)):
        heapq.heappush(todo, (_floor(request, shape), index, shape, None))
    while todo:
        bound, index, shape, classes = heapq.heappop(todo)
        worst = found[RANKED - 1][0] if len(found) >= RANKED else math.inf
        if bound >= worst or (found and work.is_over):
            break
        if classes is None:
            classes = [NodeClass(context, cluster, shape, []) for cluster in _holding(request, shape)]
            work.cells += CELLS_PER_DEVICE * shape.slots * shape.tp * len(classes)
            speeds = [(option.layer_seconds, option.capacity) for option in classes]
            heapq.heappush(todo, (_bound(request, shape, speeds), index, shape, classes))
            continue
        for order in _orders(classes, _offers(request, shape, classes, worst)):
            names, offers = [option.cluster.name for option, _ in order], [offer for _, offer in order]
            lengths = _lengths(request, shape, offers)
            division = divide(
                offers, request.workload.model.layers, shape.microbatches(request.workload), lengths, shape.vpp, work
            )
            if division is not None:
                found.append((division[0], shape, tuple((names[place], layers) for place, layers in division[1])))
        found.sort(key=lambda item: item[0])
    return found


def _holding(request: Request, shape: Shape) -> list[Cluster]:
    """Clusters that hold a submesh of a shape at least."""
    clusters = (cluster for cluster in request.clusters() if cluster.node.count >= shape.tp)
    return [cluster for cluster in clusters if slots(cluster, shape.tp) >= shape.slots]


def _floor(request: Request, shape: Shape) -> Seconds:
    """The bound of a shape whose tensor-parallel ranks say nothing: known before anything is looked up on the network."""
    config = shape.config(request.workload, 2)
    speeds = [
        (sum(compute_seconds(c.node.device, request.workload, config, 1, False, False)), slots(c, shape.tp) // shape.slots)
        for c in _holding(request, shape)
    ]
    return _bound(request, shape, speeds)


def _bound(request: Request, shape: Shape, classes: list[tuple[Seconds, int]]) -> Seconds:
    """T of layers that can be divided at will over the fastest stages: what no division of a shape can beat.

    `classes` are the seconds of a layer and the number of submeshes of every cluster."""
    layers, m = request.workload.model.layers, shape.microbatches(request.workload)
    most = request.wishes.pp or layers
    speeds = sorted((1 / seconds for seconds, number in classes for _ in range(min(number, most))), reverse=True)[:most]
    if not speeds or len(speeds) < (request.wishes.pp or 1):
        return math.inf
    return (m - 1) * max(layers / sum(speeds), 1 / speeds[0]) + layers / speeds[0] / shape.vpp


def _orders(classes: list[NodeClass], offers: list[Submeshes]) -> Iterator[tuple[tuple[NodeClass, Submeshes], ...]]:
    """Orders of the clusters along the pipeline; a programme may leave clusters out, so that subsets are among them."""
    pairs = tuple(zip(classes, offers, strict=True))
    yield from itertools.permutations(pairs) if len(pairs) <= 3 else (pairs, pairs[::-1])


def _lengths(request: Request, shape: Shape, offers: list[Submeshes]) -> tuple[int, ...]:
    """Numbers of stages that the machines, the layers, the schedule and the wishes allow."""
    most = min(sum(offer.capacity for offer in offers), request.workload.model.layers // shape.vpp)
    m, wished = shape.microbatches(request.workload), request.wishes.pp
    return tuple(pp for pp in range(1, most + 1) if pp == (wished or pp) and (shape.vpp == 1 or m % pp == 0))


def _offers(request: Request, shape: Shape, classes: list[NodeClass], worst: Seconds) -> list[Submeshes]:
    """What every class offers; stages so large that T would be `worst` or more are left out."""
    layers, m = request.workload.model.layers, shape.microbatches(request.workload)
    depth = min(sum(option.capacity for option in classes), request.wishes.pp or layers, layers)
    least = layers * min(option.layer_seconds for option in classes) / shape.vpp
    offers = []
    for option in classes:
        tables = {role: np.full((depth + 1, layers + 1), np.inf) for role in ("first", "middle", "last", "only")}
        for role, table in tables.items():
            for k in range(shape.vpp, layers + 1):
                seconds, held = _seconds(option, role, k), option.memory.held(role, k)
                if held < option.least_held or (m - 1) * seconds + least >= worst:
                    break
                table[1 : (depth if held >= m else min(depth, int(held))) + 1, k] = seconds
        first, other = tables["first"], tables["middle"]
        first[1], other[1] = tables["only"][1], tables["last"][1]
        offers.append(Submeshes(min(option.capacity, depth), first, other))
    return offers


def _seconds(option: NodeClass, role: str, layers: int) -> Seconds:
    """t of a stage: a microbatch forward and backward, and its share of what the gradients' synchronisation takes."""
    cost = option.cost(role, layers)
    if option.config.reduces_each_microbatch:
        return cost.both + cost.traffic
    return cost.both + (cost.reduce + cost.gather) / option.microbatches


def divide(
    offers: Sequence[Submeshes], layers: int, microbatches: int, lengths: Sequence[int], vpp: int, work: Work
) -> tuple[Seconds, Stages] | None:
    """(T, stages) of the least T over all t_max; None where nothing fits. The sum is passed once, in vpp turns.

    A larger t_max never has a larger sum, so that what lies between two of them is skipped where neither can be improved."""
    bounds = sorted({float(t) for offer in offers for table in (offer.first, offer.other) for t in table[np.isfinite(table)]})
    known: dict[int, tuple[Seconds, Stages] | None] = {}

    def at(index: int) -> tuple[Seconds, Stages] | None:
        if index not in known:
            known[index] = cheapest([offer.under(bounds[index]) for offer in offers], layers, lengths, work)
        return known[index]

    if not bounds or not lengths or at(len(bounds) - 1) is None:
        return None
    low, high = -1, len(bounds) - 1  # no division under low, one under high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if at(middle) else (middle, high)
    best: tuple[Seconds, Stages] | None = None
    todo = [(high, len(bounds) - 1)]
    for index in (high, len(bounds) - 1):
        best = _better(best, at(index), bounds[index], microbatches, vpp)
    while todo and best is not None and not work.is_over:
        low, high = todo.pop()
        found = at(high)
        assert found is not None
        if high - low > 1 and (microbatches - 1) * bounds[low + 1] + found[0] / vpp < best[0]:
            middle = (low + high) // 2
            best = _better(best, at(middle), bounds[middle], microbatches, vpp)
            todo += [(middle, high), (low, middle)]
    return best


def _better(
    best: tuple[Seconds, Stages] | None, found: tuple[Seconds, Stages] | None, bound: Seconds, microbatches: int, vpp: int
) -> tuple[Seconds, Stages] | None:
    """The better of the best division and one of (least sum, stages) found under a bound."""
    if found is None:
        return best
    seconds = (microbatches - 1) * bound + found[0] / vpp
    return (seconds, found[1]) if best is None or seconds < best[0] else best


def cheapest(offers: Sequence[Submeshes], layers: int, lengths: Sequence[int], work: Work) -> tuple[Seconds, Stages] | None:
    """(sum of t, stages as (place in `offers`, layers)) of the least sum of stages that hold all layers, in this order.

    From the end of the pipeline to its begin: behind[s, k] is the least sum of s stages that hold the last k layers."""
    depth = max(lengths)
    behind = np.full((depth + 1, layers + 1), np.inf)
    behind[0, 0] = 0.0
    allowed = np.isin(np.arange(depth + 1), lengths)
    best, begin, steps = math.inf, None, [[np.zeros(0, np.int32)] for _ in offers]
    taken = [np.zeros((depth + 1, layers + 1), np.int32) for _ in offers]
    for at in reversed(range(len(offers))):
        offer, now = offers[at], behind
        for count in range(offer.capacity + 1):
            if count < offer.capacity:
                whole = now[:-1, ::-1] + offer.first[1 : depth + 1]  # [s - 1, k]: k layers first, the rest behind
                whole[~allowed[1:]] = np.inf
                place = int(np.argmin(whole))
                if whole.flat[place] < best:
                    best, begin = float(whole.flat[place]), (at, count, *divmod(place, layers + 1))
            better = now < behind
            behind = np.where(better, now, behind)
            taken[at][better] = count
            if count == offer.capacity:
                break
            now, sizes = _longer(now, offer.other[: depth + 1], work)
            if not np.isfinite(now).any():
                break
            steps[at].append(sizes)
    if begin is None:
        return None
    return best, _walk(begin, layers, taken, steps)


def _longer(now: Table, seconds: Table, work: Work) -> tuple[Table, NDArray[np.int32]]:
    """Least sums of pipelines with one stage more at their begin, and the layers of that stage."""
    longer, sizes = np.full_like(now, np.inf), np.zeros(now.shape, np.int32)
    rows = np.flatnonzero(np.isfinite(now[:-1]).any(axis=1))
    if not rows.size:
        return longer, sizes
    low, high = int(rows[0]), int(rows[-1]) + 1
    before, after, chosen = now[low:high], longer[low + 1 : high + 1], sizes[low + 1 : high + 1]
    for k in np.flatnonzero(np.isfinite(seconds[low + 1 : high + 1]).any(axis=0)):
        candidate = before[:, : before.shape[1] - k] + seconds[low + 1 : high + 1, k, None]
        better = candidate < after[:, k:]
        np.copyto(after[:, k:], candidate, where=better)
        np.copyto(chosen[:, k:], k, where=better)
        work.cells += candidate.size
    return longer, sizes


def _walk(
    begin: tuple[int, int, int, int],
    layers: int,
    taken: Sequence[NDArray[np.int32]],
    steps: Sequence[Sequence[NDArray[np.int32]]],
) -> Stages:
    """Stages of the best pipeline; `begin` is the first's class, how many of its class and of all stand behind, its size."""
    at, count, behind, size = begin
    found, left = [(at, size)], layers - size
    while behind:
        while not count:
            at += 1
            count = int(taken[at][behind, left])
        size = int(steps[at][count][behind, left])
        found.append((at, size))
        behind, left, count = behind - 1, left - size, count - 1
    return tuple(found)
