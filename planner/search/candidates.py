"""Candidates: promising pipelines of a shape, found without a solver and priced by the evaluator.

A candidate says how many stages stand on which class, in which order, and how many layers each has. The slowest slot decides
how many stages a class should have: at each level of it every class holds as many layers a stage as it can in that time, and
the slowest classes give back what is too much. Then layer after layer goes to the place that is done with it first, as far as
its memory goes, and the best candidates are improved by moving single layers. Seconds are those of `sim.analytic.evaluator` on
an idle network, with the messages and the nodes of exactly the placement that `planner.placement.ranks.build` makes.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations, groupby, pairwise, permutations, product
from typing import TypeAlias

import numpy as np

from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass, under
from planner.models.class_orders import orders
from planner.placement.ranks import virtual
from planner.space.shapes import Shape, overlaps
from sim.analytic.candidates import STAGE, UNTIED, Floats
from sim.analytic.evaluator import Ints, Table
from sim.analytic.recurrence import steps
from sim.errors import NoRoute, NotModelled
from sim.plan import schedules
from sim.units import time_text

EVERY = 60
"""Pipelines of a shape over a set of classes, up to which all of them are priced."""
LEVELS = 3
"""Levels of the slowest slot that are tried, from the lowest at which the layers fit."""
ROUNDS = 40
"""Times that one layer is moved."""
GIVERS = 4
"""Slowest places that may give a layer; so may the first and the last."""


Row: TypeAlias = tuple[tuple[int, int], ...]
"""(class, layers) of every pipeline place."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pipeline of a shape, its step on an idle network, and what of it all messages take on the fullest link."""

    seconds: float
    through: float
    drawing: _Drawing
    row: Row

    @property
    def shape(self) -> Shape:
        """Its degrees and schedule."""
        return self.drawing.shape

    @property
    def stages(self) -> tuple[tuple[str, int], ...]:
        """(cluster, layers) of every place."""
        return tuple((self.drawing.some[i].cluster.name, layers) for i, layers in self.row)

    def either(self) -> Iterator[Candidate]:
        """The candidate, and the same pipeline with its weights gathered the other way (`overlaps`), as far as it is
        evaluated."""
        return self.drawing.either(self)

    def improved(self) -> Candidate:
        """The candidate after single layers have moved for the better."""
        return self.drawing.improved(self)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A pipeline of a shape with a rough estimate of its step: bounds of its stages, as in `sim.analytic.costs`."""

    seconds: float
    drawing: _Drawing
    row: Row

    def evaluated(self) -> Candidate:
        """The pipeline with the step that the evaluator gives it, or the rough one where it does not hold it."""
        return self.drawing.evaluated(self)


def estimates(context: PlanningContext, shape: Shape, classes: Sequence[NodeClass]) -> list[Estimate]:
    """Pipelines of a shape, the fastest first; none where nothing fits. Every set of classes (`_sets`) has its own."""
    found: list[Estimate] = []
    for some in _sets(classes):
        try:
            drawing = _Drawing(context, shape, some)
        except NoRoute:
            continue  # nothing joins these classes
        found += drawing.estimated()
    return sorted(found, key=lambda estimate: estimate.seconds)


def priced(
    context: PlanningContext, shape: Shape, some: tuple[NodeClass, ...], rows: Sequence[Row], most: int
) -> list[Candidate]:
    """Of given pipelines of a shape over classes the fastest, so many at most; the fastest first.

    Raises NotModelled for what the evaluator does not hold, NoRoute where nothing joins the classes.
    """
    drawing = _Drawing(context, shape, some)
    return [drawing.candidate(seconds, row) for seconds, row in drawing.priced(rows)[:most]]


def too_large(context: PlanningContext, shape: Shape, some: tuple[NodeClass, ...], rows: Sequence[Row]) -> list[Row]:
    """Of given pipelines of a shape over classes those that do not fit the memory."""
    drawing = _Drawing(context, shape, some)
    rooms: dict[tuple[int, ...], list[int]] = {}
    found = []
    for row in rows:
        classes = tuple(i for i, _ in row)
        if classes not in rooms:
            rooms[classes] = drawing._room(list(classes))
        if any(layers > room for (_, layers), room in zip(row, rooms[classes], strict=True)):
            found.append(row)
    return found


def _sets(classes: Sequence[NodeClass]) -> Iterator[tuple[NodeClass, ...]]:
    """All sets of up to three classes; of more the fastest, the fastest two, and so on."""
    if len(classes) <= 3:
        for size in range(1, len(classes) + 1):
            yield from combinations(classes, size)
        return
    by_speed = sorted(classes, key=lambda option: option.layer_seconds)
    for size in range(1, len(classes) + 1):
        yield tuple(option for option in classes if option in by_speed[:size])


class _Drawing:
    """Candidates of a shape over a set of classes, all of which have a stage."""

    def __init__(self, context: PlanningContext, shape: Shape, some: tuple[NodeClass, ...]):
        self.context, self.shape, self.some = context, shape, some
        self.workload, self.layers = context.request.workload, context.request.workload.model.layers
        self.config = some[0].config
        self.m = shape.microbatches(self.workload)
        self.wished = context.request.wishes.pp
        self.ways = [(i, way) for i, option in enumerate(some) for way in range(len(option.costs))]
        self.row = {at: index for index, at in enumerate(self.ways)}
        clusters = tuple(option.cluster for option in some)
        self.nic, self.in_step = context.fleets.nic_of(clusters), context.messages.in_step(clusters, shape)
        self._wires: dict[tuple[int, ...], tuple[list[float], list[float], float]] = {}

    def estimated(self) -> Iterator[Estimate]:
        """All pipelines over these classes where they are few, priced by the evaluator; else `rows`, roughly priced."""
        few = self._every()
        if few is None:
            yield from (Estimate(self.rough(row), self, row) for row in dict.fromkeys(self.rows()))
            return
        try:
            yield from (Estimate(max(seconds, self._through(row)), self, row) for seconds, row in self.priced(few))
        except NotModelled:  # what the evaluator does not hold
            yield from (Estimate(self.rough(row), self, row) for row in few)

    def _every(self) -> list[Row] | None:
        """Every pipeline that has a stage on each of the classes and fits; None where there are many."""
        rows: list[Row] = []
        most = [range(1, min(option.capacity, self.layers) + 1) for option in self.some]
        if math.prod(len(one) for one in most) > EVERY:
            return None
        for order in permutations(range(len(self.some))):
            for counts in product(*most):
                pp = sum(counts)
                if self.wished not in (None, pp) or pp * self.shape.vpp > self.layers or self.shape.places(self.m, pp) != pp:
                    continue
                if len(rows) + math.comb(self.layers - 1, pp - 1) > EVERY:
                    return None
                places = [i for i in order for _ in range(counts[i])]
                room = self._room(places)
                for cuts in combinations(range(1, self.layers), pp - 1):
                    layers = [b - a for a, b in pairwise((0, *cuts, self.layers))]
                    if all(self.shape.vpp <= k <= limit for k, limit in zip(layers, room, strict=True)):
                        rows.append(tuple(zip(places, layers, strict=True)))
        return rows

    def wires(self, classes: tuple[int, ...]) -> tuple[list[float], list[float], float]:
        """(ahead, back, tied) seconds of a pipeline whose places stand on these classes, by virtual stage in pipeline order.

        ahead and back: messages to the next stage and to the one before; tied: the sum of a tied embedding's gradient,
        `UNTIED` where there is none."""
        if classes not in self._wires:
            at = list(self._indexed(classes))
            pp, last = len(classes), len(classes) * self.shape.vpp - 1
            ahead = [self._hop(at[s % pp], at[(s + 1) % pp]) if s < last and pp > 1 else 0.0 for s in range(last + 1)]
            back = [self._hop(at[s % pp], at[(s - 1) % pp]) if s and pp > 1 else 0.0 for s in range(last + 1)]
            ends = self.some[classes[0]].cluster, self.some[classes[-1]].cluster
            tied = self.context.tied.seconds(*ends, at[-1][1], self.shape, self.nic) if pp > 1 else 0.0
            self._wires[classes] = ahead, back, tied if tied > 0 else UNTIED
        return self._wires[classes]

    def _indexed(self, classes: tuple[int, ...]) -> Iterator[tuple[int, int]]:
        """(class, which of its stages it is) of every place."""
        taken = [0] * len(self.some)
        for i in classes:
            yield i, taken[i]
            taken[i] += 1

    def _hop(self, source: tuple[int, int], target: tuple[int, int]) -> float:
        (i, a), (j, b) = source, target
        clusters = self.some[i].cluster, self.some[j].cluster
        return self.context.messages.hop(clusters[0], a, clusters[1], b, self.shape, self.nic, self.in_step)

    @functools.cached_property
    def table(self) -> Table:
        """Costs of stages wherever they can lie; messages are those of `wires`."""
        costs = [replace(self.some[i].costs[way], config=self.config) for i, way in self.ways]
        return Table(costs, np.zeros((len(costs), len(costs))))

    def priced(self, rows: Sequence[Row]) -> list[tuple[float, Row]]:
        """Rows with their seconds, the fastest first; a row is (class, layers) of each place."""
        found: list[tuple[float, Row]] = []
        for pp in sorted({len(row) for row in rows}):
            alike = [row for row in rows if len(row) == pp]
            found += zip(self._seconds(alike), alike, strict=True)
        return sorted(found)

    def _seconds(self, rows: Sequence[Row]) -> list[float]:
        """Seconds of pipelines with equally many places."""
        classes = [tuple(i for i, _ in row) for row in rows]
        unlike = {some: number for number, some in enumerate(dict.fromkeys(classes))}
        which = np.array([unlike[some] for some in classes])
        places: Ints = np.array([self._places(some) for some in unlike])[which]
        stages = np.array([virtual(tuple(layers for _, layers in row), self.shape.vpp) for row in rows])
        candidates = self.table.candidates(places, stages)
        wires = [self.wires(some) for some in unlike]
        for name, way in (("ahead", 0), ("back", 1)):
            candidates.stages[STAGE.index(name)] = np.array([wire[way] for wire in wires])[which].T
        tied: Floats = np.array([wire[2] for wire in wires])[which]
        found: list[float] = steps(replace(candidates, tied=tied)).tolist()
        return found

    def _places(self, classes: tuple[int, ...]) -> list[int]:
        """Rows of the table: where the stages of a pipeline lie."""
        return [self.row[i, index % len(self.some[i].costs)] for i, index in self._indexed(classes)]

    def rows(self) -> Iterator[Row]:
        """Pipelines over these classes, layers filled in."""
        number = {id(option): i for i, option in enumerate(self.some)}
        for order in orders(self.context, list(self.some)) if len(self.some) > 1 else [self.some]:
            for counts in self._counts():
                places = [number[id(option)] for option in order for _ in range(counts[number[id(option)]])]
                layers = self._filled(places)
                if layers is not None:
                    yield tuple(zip(places, layers, strict=True))

    def _counts(self) -> list[tuple[int, ...]]:
        """Stages of every class, at the lowest levels of the slowest slot."""
        capacity = [min(option.capacity, self.layers) for option in self.some]
        slots = [self._slots(i) for i in range(len(self.some))]
        slow_first = sorted(range(len(self.some)), key=lambda i: -self.some[i].layer_seconds)
        found: dict[tuple[int, ...], None] = {}
        for level in sorted({seconds for each in slots for seconds in each}):
            held = [sum(seconds <= level * (1 + 1e-9) for seconds in each) for each in slots]
            surplus = sum(n * k for n, k in zip(capacity, held, strict=True)) - self.layers
            if surplus < 0 or not all(held):
                continue
            counts = list(capacity)
            for i in slow_first:
                back = min(surplus // held[i], counts[i] - 1)
                counts[i], surplus = counts[i] - back, surplus - back * held[i]
            counts = self._allowed(counts, slow_first)
            if counts:
                found[tuple(counts)] = None
            if len(found) >= LEVELS:
                break
        return list(found)

    def _allowed(self, counts: list[int], slow_first: list[int]) -> list[int]:
        """The counts, with fewer stages on slow classes (or more where pp is pinned) until the schedule and the wishes hold."""
        total, most = sum(counts), sum(option.capacity for option in self.some)
        wanted = self.wished or self.shape.places(self.m, min(total, self.layers // self.shape.vpp))
        runs = self.shape.places(self.m, wanted) == wanted
        if not runs or not len(self.some) <= wanted <= min(most, self.layers // self.shape.vpp):
            return []
        for i in slow_first:
            back = max(min(total - wanted, counts[i] - 1), 0)
            counts[i], total = counts[i] - back, total - back
        for i in reversed(slow_first):
            more = max(min(wanted - total, self.some[i].capacity - counts[i]), 0)
            counts[i], total = counts[i] + more, total + more
        return counts

    def _slots(self, i: int) -> list[float]:
        """Seconds of a middle stage's microbatch by its layers, as far as one microbatch fits."""
        option = self.some[i]
        most = option.memory.most_layers("middle", ((1, 0),))
        return [option.cost("middle", layers).slot for layers in range(1, most + 1)]

    def _filled(self, places: list[int]) -> list[int] | None:
        """Layers of every place: one after the other to who is done with it first; None where memory ends before."""
        pp = len(places)
        roles, room, least = _roles(pp), self._room(places), self.shape.vpp
        lead, behind = [], 0.0
        even = max(1, round(self.layers / pp))
        for i in places:
            lead.append(behind)
            behind += sum(self.some[i].entry("middle", even)) + 2 * self.some[i].message
        if min(room) < least or sum(room) < self.layers or least * pp > self.layers:
            return None
        layers = [least] * pp

        def entry(place: int) -> tuple[float, int]:
            option, more = self.some[places[place]], layers[place] + 1
            return lead[place] + self.m * option.cost(roles[place], more).slot, place

        heap = [entry(place) for place in range(pp) if room[place] > least]
        heapq.heapify(heap)
        for _ in range(self.layers - least * pp):
            if not heap:
                return None
            _, place = heapq.heappop(heap)
            layers[place] += 1
            if layers[place] < room[place]:
                heapq.heappush(heap, entry(place))
        return layers

    def _room(self, places: list[int]) -> list[int]:
        """Most layers that every place has memory for."""
        pp, roles = len(places), _roles(len(places))
        microbatches, name, vpp = self.shape.enough(self.m, pp), self.shape.schedule, self.shape.vpp
        held = (schedules.in_flight(name, place, pp, microbatches, vpp) for place in range(pp))
        return [
            self.some[i].memory.most_layers(roles[place], pairs)
            for (place, i), pairs in zip(enumerate(places), held, strict=True)
        ]

    def rough(self, row: Row) -> float:
        """The latest of the stages, as `sim.analytic.costs` reckons it, with the messages where the stages will lie."""
        return max(self._through(row), max(seconds for seconds, _ in self._stages(row)))

    def told(self, row: Row) -> str:
        """What the latest of the stages does in a step, or the fullest link where it takes longer."""
        latest, words = max(self._stages(row), key=lambda stage: stage[0])
        through = self._through(row)
        return f"messages of the step on the fullest link: {_seconds(through)}" if through > latest else words

    def _stages(self, row: Row) -> Iterator[tuple[float, str]]:
        """When the step ends if a stage decides, and what it does until then; stage by stage."""
        roles = _roles(len(row))
        sent, returned, summed = self.wires(tuple(i for i, _ in row))
        there = back = first = 0.0
        tied = max(summed, 0.0)
        for place, (i, layers) in enumerate(row):
            option = self.some[i]
            cost, entry = option.cost(roles[place], layers), option.entry(roles[place], layers)
            before, ahead = returned[place], sent[place] if place + 1 < len(row) else 0.0
            there, back = there + before, back + before
            if option.waits:
                cost = replace(cost, send_forward=ahead, send_backward=before)
            else:
                cost = replace(cost, lane=ahead * self.shape.vpp)
            if not place:
                first = cost.tail(option.plain, tied)
            own = cost.tail(option.plain, tied if place in (0, len(row) - 1) else 0.0)
            after = max(own, back + first - self.m * cost.weight if place else 0.0)
            begun = cost.begin(there, option.plain)
            waits = " messages included" if option.waits and ahead + before > 0.05 * cost.slot else ""
            yield (
                begun + self.m * cost.slot + after,
                f"stage {place} ({layers} layers on {option.cluster.name}): {_seconds(begun)} until work comes, "
                f"{self.m} x {_seconds(cost.slot)}{waits}, {_seconds(after)} behind the last",
            )
            there, back = there + entry[0], back + entry[1]

    def _through(self, row: Row) -> float:
        """What the messages of a step take on the fullest link, both ways."""
        runs = tuple((self.some[i].cluster, len(list(stages))) for i, stages in groupby(i for i, _ in row))
        return self.m * self.context.loads.whole_pipeline(runs, self.shape, self.nic)

    def evaluated(self, estimate: Estimate) -> Candidate:
        """An estimate, priced by the evaluator."""
        try:
            seconds = self.priced([estimate.row])[0][0]
        except NotModelled:  # what the evaluator does not hold
            seconds = estimate.seconds
        return self.candidate(seconds, estimate.row)

    def either(self, candidate: Candidate) -> Iterator[Candidate]:
        """A candidate with its weights gathered either way."""
        yield candidate
        for shape in overlaps(self.shape)[1:]:
            other = _Drawing(self.context, shape, under(self.context, shape, self.some))
            with suppress(NotModelled):
                yield other.candidate(other.priced([candidate.row])[0][0], candidate.row)

    def improved(self, candidate: Candidate) -> Candidate:
        """A candidate after single layers have moved for the better, one at a time."""
        pp, row, seconds = len(candidate.row), candidate.row, candidate.seconds
        roles, room = _roles(pp), self._room([i for i, _ in row])
        for _ in range(ROUNDS if pp > 1 else 0):
            slow = sorted(range(pp), key=lambda p: -self.some[row[p][0]].cost(roles[p], row[p][1]).slot)
            rows = []
            for a in dict.fromkeys((*slow[:GIVERS], 0, pp - 1)):
                for b in range(pp):
                    if a != b and row[a][1] > self.shape.vpp and row[b][1] < room[b]:
                        moved = list(row)
                        moved[a], moved[b] = (row[a][0], row[a][1] - 1), (row[b][0], row[b][1] + 1)
                        rows.append(tuple(moved))
            try:
                best = self.priced(rows)[0] if rows else (math.inf, row)
            except NotModelled:
                break
            if best[0] >= seconds:
                break
            seconds, row = best
        return self.candidate(seconds, row)

    def candidate(self, seconds: float, row: Row) -> Candidate:
        """A pipeline that takes so many seconds by the evaluator."""
        through = self._through(row)
        return Candidate(max(seconds, through), through, self, row)


def _roles(pp: int) -> list[str]:
    return ["only"] if pp == 1 else ["first", *["middle"] * (pp - 2), "last"]


def _seconds(value: float) -> str:
    return time_text(float(f"{value:.3g}"))
