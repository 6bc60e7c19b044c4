"""Pipelines of a model whose layers differ with the least bound on their step, by a dynamic programme over ranges of layers.

Idea. A stage of class c with the layers from b to e, in a pipeline of whole stages without virtual ones, implies two lower
bounds on the step (`sim.analytic.pipeline_step`). Both grow with the fill and the drain before it, and these are at least
those of the layers before b, each on the class where it is fastest. So the stage's bound w[c, b, e] does not depend on how
the other layers are cut, and the least value of the largest w over all cuts is a lower bound on the step of every pipeline.
The programme fills stages from the last to the first, because the microbatches in flight on a stage depend on the stages
behind it. It keeps, for each set of classes that have stages (the stages of a class are consecutive; M. Held, R. M. Karp,
Journal of SIAM 10(1), 1962), each number of stages and each first layer, the least of the largest bounds.

Relaxations: messages take their least seconds, a stage is at its best position on the nodes, the collective of a tied embedding
and contention are left out, and the first stage has the least tail of all first stages."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.costs.context import PlanningContext
from planner.costs.layer_kinds import Ends
from planner.costs.unlike_layers import UnlikeStages
from planner.space import lengths
from planner.space.runnable import runs
from planner.space.shape import Shape
from sim.analytic.stage_costs import StageCost
from sim.plan import schedules
from sim.units import Seconds

Array: TypeAlias = NDArray[np.float64]
Pipeline: TypeAlias = tuple[tuple[str, int], ...]
"""(cluster, layers of the model) of each stage."""
Tables: TypeAlias = dict[tuple[bool, bool], Array]
"""Bounds of the stages of a class by stages behind, first layer and end, for each (next, previous) stage of another class."""
Behind: TypeAlias = tuple[int, ...]
"""The classes of the stages behind, from the last one on; of many classes in any order."""
ORDERED = 3
"""Largest number of classes of which each order has a pipeline of its own: messages that share links tell them apart, which no
bound does. Guess: of more, there are too many."""
MOST_CLASSES = 5
"""Largest number of classes whose stages are told apart; more classes are bounded by `planner.bounds.unlike_work` alone. The
programme has twice as many sets of classes for each further class."""


@dataclass(frozen=True, slots=True)
class Bounded:
    """A lower bound in seconds on all pipelines of some stages, and the pipeline that has it."""

    seconds: Seconds
    pipeline: Pipeline


def single_stages(context: PlanningContext, shape: Shape, classes: Sequence[UnlikeStages]) -> Iterator[Bounded]:
    """Pipelines of one stage that fit in memory, one for each class."""
    request, m = context.request, shape.microbatches(context.request.workload)
    if not _allowed(context, shape, 1):
        return
    held = schedules.in_flight(shape.schedule, 0, 1, m, 1)
    for option in classes:
        ends, layers = (True, True), option.layers
        counts = layers.counts(0, layers.number)
        if option.fits(counts, ends, held):
            cost, config = option.cost(counts, ends), replace(option.config, pp=1)
            seconds = cost.begin(0.0, config) + m * cost.cycle + cost.tail(config)
            yield Bounded(seconds, ((option.cluster.name, request.workload.model.layers),))


def best_pipelines(
    context: PlanningContext, shape: Shape, classes: Sequence[UnlikeStages], cutoff: Seconds = math.inf
) -> list[Bounded]:
    """For each number of stages that is allowed, from 2 on, the pipeline with the least bound, and with few classes (`ORDERED`)
    that of each order; those that fit in memory.

    Each bound holds for all pipelines of so many stages of the shape, in this order, which has no virtual stages. Bounds of
    `cutoff` or more may be lower than they could be, and their pipelines need not fit."""
    longest = sum(option.max_stages for option in classes)
    layers = classes[0].layers
    longest = min(longest, layers.number + (layers.further > 0), lengths.longest(context.request, shape) or longest)
    able = [pp for pp in range(2, longest + 1) if _allowed(context, shape, pp)]
    if not able:
        return []
    return _Programme(context, shape, classes, max(able), cutoff).solved(able)


def _allowed(context: PlanningContext, shape: Shape, pp: int) -> bool:
    request, m = context.request, shape.microbatches(context.request.workload)
    return lengths.allows(request, shape, pp) and shape.is_defined(m, pp) and runs(request, shape, pp)


class _Filling:
    """The least bounds after 1, 2, 3 ... consecutive stages of a class before given ones, by stages in all and first layer.

    start: those of the stages behind; borders: there are such stages, of other classes. `open`: further stages of the class
    come before; `ended`: another class, or no stage, does."""

    def __init__(self, start: Array, tables: Tables, borders: bool, most: int):
        self._tables, self._borders = tables, borders
        self.open, self.ended = [start], list[Array]()
        for _ in range(most):
            self.ended.append(self._step(self.open[-1], True))
            self.open.append(self._step(self.open[-1], False))

    def _table(self, used: int, ends: bool) -> Array:
        """The table of the stage with so many stages of the class behind it, which is the first one of the class or not."""
        return self._tables[self._borders and not used, ends]

    def _step(self, before: Array, ends: bool) -> Array:
        table, after = self._table(len(self.open) - 1, ends), np.full_like(before, np.inf)
        for k in np.flatnonzero(np.isfinite(before[:-1]).any(axis=1)).tolist():
            after[k + 1] = np.maximum(before[k][None, :], table[k]).min(axis=1)
        return after

    def has(self, pp: int, first: int, value: float) -> bool:
        """Whether stages that begin with a layer have a value, as the stages of the class that come first."""
        return any(one[pp, first] == value for one in self.ended)

    def ends(self, pp: int, first: int, value: float) -> Iterator[int]:
        """The end of each stage of the class, from the first one on."""
        used, ends = next(i for i, one in enumerate(self.ended) if one[pp, first] == value), True
        for k in range(used, -1, -1):
            first = int(np.maximum(self.open[k][pp - 1], self._table(k, ends)[pp - 1][first]).argmin())
            yield first
            pp, ends = pp - 1, False


class _Programme:
    """The dynamic programme of one shape. Positions are layers 0 to L, and L + 1 behind the head: a stage that ends there has
    the head. The last stage may be without layers where further ones are on it."""

    def __init__(
        self, context: PlanningContext, shape: Shape, classes: Sequence[UnlikeStages], longest: int, cutoff: Seconds
    ):  # fmt: skip
        self._context, self._shape, self._classes, self._longest = context, shape, classes, longest
        self._cutoff = cutoff
        self._layers, self._m = classes[0].layers, shape.microbatches(context.request.workload)
        self._size = self._layers.number + 2
        self._fill, self._drain = self._passed()
        schedule = schedules.get(shape.schedule)
        self._waits = not schedule.OVERLAPS_SENDS
        self._owed = schedules.most_in_flight(shape.schedule, longest, self._m, 1)[1]
        every = [stage for stage in self._ranges() if stage[0] == 0]
        self._first_tail = min(
            (option.cost(*self._content(*stage)).tail(option.config) for option in classes for stage in every), default=0.0
        )

    def solved(self, able: Sequence[int]) -> list[Bounded]:
        """The best pipeline for each number of stages, and where there are few classes for each order of them."""
        tables = [self._tables(option) for option in self._classes]
        numbers, n = range(len(self._classes)), self._longest
        empty = np.full((n + 1, self._size), np.inf)
        empty[0, -1] = 0.0
        found: dict[Behind, Array] = {(): empty}
        filled: dict[tuple[Behind, int], _Filling] = {}
        for used in numbers:
            for behind in [one for one in found if len(one) == used]:
                for c in (c for c in numbers if c not in behind):
                    most = min(self._classes[c].max_stages, n)
                    filled[behind, c] = filling = _Filling(found[behind], tables[c], bool(behind), most)
                    after, least = self._after(behind, c), np.minimum.reduce(filling.ended)
                    found[after] = np.minimum(found[after], least) if after in found else least
        best = []
        for pp in able:
            every = sorted((float(one[pp, 0]), where) for where, one in found.items())
            for value, where in every if self._ordered else every[:1]:
                if value < math.inf:
                    best.append(Bounded(value, self._pipeline(found, filled, where, pp)))
        return best

    @property
    def _ordered(self) -> bool:
        """Whether orders of the classes are told apart."""
        return len(self._classes) <= ORDERED

    def _after(self, behind: Behind, c: int) -> Behind:
        """The classes of the stages behind, once those of another class come before them."""
        return (*behind, c) if self._ordered else tuple(sorted((*behind, c)))

    def _pipeline(
        self, found: dict[Behind, Array], filled: dict[tuple[Behind, int], _Filling], where: Behind, pp: int
    ) -> Pipeline:
        """The stages that have a value, from the first to the last."""
        stages, first = list[tuple[str, int]](), 0
        while where:
            value = found[where][pp, first]
            last = where[-1:] if self._ordered else where
            before = ((tuple(one for one in where if one != c), c) for c in last)
            where, c = next(pair for pair in before if pair in filled and filled[pair].has(pp, first, value))
            for past in filled[where, c].ends(pp, first, value):
                stages.append((self._classes[c].cluster.name, min(past, self._layers.number) - first))
                first, pp = past, pp - 1
        return tuple(stages)

    def _ranges(self) -> Iterator[tuple[int, int]]:
        """(first layer, end) of all stages that a pipeline of several stages may have."""
        number = self._layers.number
        yield from itertools.combinations(range(number + 1), 2)
        yield from ((first, number + 1) for first in range(1, number + (self._layers.further > 0)))

    def _content(self, first: int, end: int) -> tuple[tuple[int, ...], Ends]:
        number = self._layers.number
        return self._layers.counts(first, min(end, number)), (first == 0, end > number)

    def _passed(self) -> tuple[Array, Array]:
        """Least seconds of fill and of drain before each layer: each layer and the embedding on the fastest class, and one
        message."""
        kinds = [option.kind_seconds() for option in self._classes]
        ahead = [min(own[kind].forward for own in kinds) for kind in range(len(self._layers.kinds))]
        back = [min(own[kind].inputs for own in kinds) for kind in range(len(self._layers.kinds))]
        hop = min((self._hop(option) for option in self._classes), default=0.0)
        fill, drain = np.zeros(self._size), np.zeros(self._size)
        for first in range(1, self._layers.number + 1):
            counts = self._layers.counts(0, first)
            fill[first] = hop + sum(n * seconds for n, seconds in zip(counts, ahead, strict=True))
            drain[first] = hop + sum(n * seconds for n, seconds in zip(counts, back, strict=True))
        return fill, drain

    def _hop(self, option: UnlikeStages, crossing: bool = False) -> Seconds:
        """Least seconds of a message from a stage of a class to a neighbour, or (`crossing`) to one of another class."""
        others = (other for other in self._classes if other is not option or (option.max_stages > 1 and not crossing))
        least = (self._context.messages.least(option.cluster, other.cluster, self._shape) for other in others)
        found = min(least, default=math.inf)
        return found if math.isfinite(found) or crossing else 0.0

    def _tables(self, option: UnlikeStages) -> Tables:
        """The bounds of all stages of a class, by whether the next and the previous stage are of another class."""
        hops = self._hop(option), self._hop(option, crossing=True)
        several = len(self._classes) > 1
        pairs = [(ahead, back) for ahead in (False, True) for back in (False, True) if several or not (ahead or back)]
        found = {pair: self._table(option, hops[pair[0]], hops[pair[1]]) for pair in pairs}
        return found if several else {(ahead, back): found[False, False] for ahead in (False, True) for back in (False, True)}

    def _table(self, option: UnlikeStages, ahead: Seconds, back: Seconds) -> Array:
        """The bounds of all stages of a class, by stages behind, first layer and end; infinite where memory does not
        suffice."""
        bounds = np.full((self._longest, self._size, self._size), np.inf)
        held = [self._in_flight(behind) for behind in range(self._longest)]
        sends: dict[tuple[object, ...], tuple[StageCost, int]] = {}
        kinds = [one.both * self._m for one in option.kind_seconds()]
        for first, end in self._ranges():
            content = self._content(first, end)
            if sum(n * seconds for n, seconds in zip(content[0], kinds, strict=True)) >= self._cutoff:
                bounds[slice(1, None) if end <= self._layers.number else 0, first, end] = self._cutoff
                continue
            if content not in sends:
                cost = option.cost(*content)
                here, there = 0.0 if content[1][0] else back, 0.0 if content[1][1] else ahead
                priced = (
                    cost.sending(there, here, 0.0, cost.weight) if self._waits else cost.sending(0.0, 0.0, there, cost.weight)
                )
                sends[content] = priced, self._most_behind(option, *content, held)
            priced, behind = sends[content]
            if math.isinf(priced.cycle):
                continue
            if end <= self._layers.number:
                bounds[1:behind, first, end] = self._seconds(option, priced, first)
            elif behind:
                bounds[0, first, end] = self._seconds(option, priced, first)
        return bounds

    def _most_behind(
        self, option: UnlikeStages, counts: tuple[int, ...], ends: Ends, held: Sequence[tuple[tuple[int, int], ...]]
    ) -> int:
        """Number of stages behind a stage up to which, not including it, its memory suffices."""
        return next((behind for behind, pairs in enumerate(held) if not option.fits(counts, ends, pairs)), len(held))

    def _in_flight(self, behind: int) -> tuple[tuple[int, int], ...]:
        """What a stage with so many stages behind it holds at least (`WARM_UP`, c, of `sim.plan.schedules`)."""
        name = self._shape.schedule
        if not schedules.holds_more_before(name):
            return ((1, 0),)
        return schedules.in_flight(name, 0, behind + 1, self._m, 1)

    def _seconds(self, option: UnlikeStages, cost: StageCost, first: int) -> Seconds:
        """The least step that a stage implies, which begins with layer `first`."""
        config, m = option.config, self._m
        begin, cycles = cost.begin(self._fill[first], config), m * cost.cycle
        seconds = begin + cycles + cost.tail(config)
        if first:
            last = cost.last_backward(m, min(self._owed, m))
            seconds = max(seconds, begin + last + self._drain[first] + self._first_tail)
        return float(seconds)
