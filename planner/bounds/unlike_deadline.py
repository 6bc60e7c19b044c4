"""The deadline test of pipelines of layers that differ, virtual stages included: by work, memory, fill and drain.

Idea. Some kinds of layers are counted, with a weight each. Within T seconds, rank i of a pipeline holds at most the weight that

- its memory holds beside the microbatches of its position: (room for layers) x the largest weight / bytes of a kind;
- it computes: (T - fill and drain before it - m x seconds of an end) / m x the largest weight / seconds of a kind.

Fill and drain before it are at least those of the weight b on the ranks before, and of one layer on each of them. With vpp
virtual stages only the first one of a rank counts, which has k // vpp >= k / (2 vpp - 1) of its k layers. If all ranks
together hold less than all layers that are counted, no pipeline ends within T. Invariant: no pipeline has more on the ranks
up to i than the test says. A unit more on the ranks before takes at most a unit from rank i, because fill and drain of a
layer take no longer than one microbatch on it. That is so for whole layers, too. Where classes have few stages, the sum over
the classes counts as well, of ranks that wait for one layer on each rank before them only.

What is counted: all kinds, weighted by their seconds on one of the classes; and, for each kind, whole layers of all kinds
that are no faster, each as fast as the fastest of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from planner.costs.context import PlanningContext
from planner.costs.unlike_layers import UnlikeStages
from planner.costs.unlike_passes import KindSeconds
from planner.request import Request
from planner.space import lengths
from planner.space.runnable import runs
from planner.space.shape import Shape
from sim.plan import schedules
from sim.units import Seconds

InFlight: TypeAlias = tuple[tuple[float, float], ...]
"""Pairs of microbatches between F and B, and between B and W, that a rank holds at once."""
PRECISE = 1e-3
"""Relative precision of the least seconds that pass the test. Larger: weaker bounds, found sooner."""
ROUNDING = 1e-9
"""Relative amount by which capacities are raised, so that rounding makes no bound higher."""


@dataclass(frozen=True, slots=True)
class _Count:
    """One way to count layers: whole ones or fractions; by class, the weight that one second computes; `passed`: least seconds
    of fill and drain of one unit before a rank; by class and rank, the weight that fits in memory; `total`: of all layers."""

    whole: bool
    total: float
    speeds: tuple[float, ...]
    passed: Seconds
    capacities: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class _Length:
    """Pipelines of one number of ranks. `least`: seconds of fill and drain of each rank at least; `ends`: seconds of embedding
    and head for one microbatch, by class; `many`: most ranks of each class."""

    pp: int
    m: int
    least: Seconds
    ends: tuple[tuple[Seconds, Seconds], ...]
    many: tuple[int, ...]
    counts: tuple[_Count, ...]

    def within(self, seconds: Seconds) -> bool:
        """Whether some pipeline might end within so many seconds."""
        return all(self._holds(count, seconds) for count in self.counts)

    def _holds(self, count: _Count, seconds: Seconds) -> bool:
        """Whether the ranks might hold all layers: one after the other, and by class without the fill before them."""
        before, classes = 0.0, range(len(self.many))
        free: list[list[float]] = [[] for _ in classes]
        for rank in range(self.pp):
            reached = -1.0
            for c in classes:
                ends = self.ends[c][0] * (rank == 0) + self.ends[c][1] * (rank == self.pp - 1)
                left = seconds - self.m * ends
                room = left - rank * self.least
                free[c].append(self._most(count, c, rank, room))
                if room >= 0:
                    reached = max(reached, self._reached(count, c, rank, before, (left, room)))
            if reached < 0:
                return False
            before = min(reached, count.total)
        return min(before, self._by_class(free)) >= count.total * (1 - ROUNDING)

    def _by_class(self, free: Sequence[Sequence[float]]) -> float:
        """The largest weight of ranks of which no class has more than it may have; `free`: of each rank, by class."""
        return sum(sum(sorted(own, reverse=True)[:many]) for own, many in zip(free, self.many, strict=True))

    def _most(self, count: _Count, c: int, rank: int, seconds: Seconds) -> float:
        """The largest weight that a rank holds on a class if it computes for so many seconds; 0 for no time."""
        most = max(min(count.capacities[c][rank], seconds * count.speeds[c] / self.m), 0.0) * (1 + ROUNDING)
        return float(math.floor(most + ROUNDING)) if count.whole else most

    def _reached(self, count: _Count, c: int, rank: int, before: float, left: tuple[Seconds, Seconds]) -> float:
        """The largest weight on the ranks up to this one, of which at most `before` is on the ranks before it.

        left: seconds without the fill of the ranks before, and with that of one layer on each."""
        own = min(left[1], left[0] - before * count.passed)
        if own < 0:  # so much before it leaves no time
            most = left[0] / count.passed * (1 + ROUNDING)
            return float(math.floor(most + ROUNDING)) if count.whole else most
        return before + self._most(count, c, rank, own)


def deadline_bound(
    context: PlanningContext, shape: Shape, classes: Sequence[UnlikeStages], low: Seconds, high: Seconds
) -> Seconds:
    """`least_seconds` of pipelines on each class alone, and on several classes; the latter have a border, over which the
    messages of every microbatch go."""
    request, m = context.request, shape.microbatches(context.request.workload)
    found = min(least_seconds(request, shape, [option], low, high) for option in classes)
    pairs = [(a, b) for a in classes for b in classes if a is not b]
    if not pairs:
        return found
    border = min(context.messages.least(a.cluster, b.cluster, shape) for a, b in pairs)
    if not schedules.get(shape.schedule).OVERLAPS_SENDS:
        border += min(one.both for option in classes for one in option.kind_seconds())
    border *= m * shape.vpp if schedules.get(shape.schedule).OVERLAPS_SENDS else m
    if border >= high:
        return min(found, high)
    return min(found, least_seconds(request, shape, classes, max(low, border), high))


def might_finish(context: PlanningContext, every: Sequence[Sequence[UnlikeStages]], seconds: Seconds) -> bool:
    """Whether some pipeline might end within so many seconds, under any schedule and vpp (False is a proof that none does).

    every: the classes of a shape under each of its ZeRO stages. A rank holds one microbatch at least, nothing is filled or
    drained, and as many stages as possible are best."""
    classes, request = every[0], context.request
    layers, shape = classes[0].layers, classes[0].shape
    longest = min(sum(option.max_stages for option in classes), layers.number + 1)
    pp = min(longest, lengths.longest(request, replace(shape, vpp=1)) or longest)
    kinds = [option.kind_seconds(lengths.shortest(request) == 1) for option in classes]
    held: list[InFlight] = [((1.0, 0.0),)] * pp
    found = [list(_counts(shape, some, kinds, held)) for some in every]
    counts = []
    for alike in zip(*found, strict=True):
        capacities = tuple(
            tuple(map(max, zip(*(one.capacities[c] for one in alike), strict=True))) for c in range(len(classes))
        )
        counts.append(replace(alike[0], passed=0.0, capacities=capacities))
    many = tuple(min(option.max_stages, pp) for option in classes)
    m = shape.microbatches(request.workload)
    return _Length(pp, m, 0.0, _ends(classes, kinds), many, tuple(counts)).within(seconds)


def _ends(classes: Sequence[UnlikeStages], kinds: Sequence[Sequence[KindSeconds]]) -> tuple[tuple[Seconds, Seconds], ...]:
    """By class, seconds of one microbatch in the embedding, and in the head with the layers that predict further tokens."""
    layers, found = classes[0].layers, []
    for option, own in zip(classes, kinds, strict=True):
        embedding, head = option.end_seconds()
        found.append((embedding, head + layers.further * own[layers.last].both))
    return tuple(found)


def least_seconds(request: Request, shape: Shape, classes: Sequence[UnlikeStages], low: Seconds, high: Seconds) -> Seconds:
    """A lower bound in seconds on the step of all pipelines of whole stages of a shape under its schedule, vpp and ZeRO stage.

    It is at least `low`, which must be a lower bound, and at most `high`, above which nothing is told apart; infinite only
    where `high` is and no pipeline has the memory."""
    every = [_length(request, shape, classes, pp) for pp in pipeline_lengths(request, shape, classes)]
    every = [one for one in every if one.within(high)]
    if not every:
        return high
    if math.isinf(high):
        high = max(low, 1e-9)
        while not any(one.within(high) for one in every):
            low, high = high, 2 * high
    while high - low > PRECISE * high:
        middle = (low + high) / 2
        passing = [one for one in every if one.within(middle)]
        low, high, every = (low, middle, passing) if passing else (middle, high, every)
    return low


def cannot_finish(request: Request, shape: Shape, classes: Sequence[UnlikeStages], pp: int, seconds: Seconds) -> bool:
    """Whether no pipeline of so many ranks ends within so many seconds, by this test."""
    return not _length(request, shape, classes, pp).within(seconds)


def pipeline_lengths(request: Request, shape: Shape, classes: Sequence[UnlikeStages]) -> Iterator[int]:
    """The numbers of ranks that are allowed."""
    layers, m = classes[0].layers, shape.microbatches(request.workload)
    further = layers.further if shape.vpp > 1 else layers.further > 0
    most = min(sum(option.max_stages for option in classes), (layers.number + further) // shape.vpp)
    for pp in range(1, most + 1):
        if lengths.allows(request, shape, pp) and shape.is_defined(m, pp) and runs(request, shape, pp):
            yield pp


def _length(request: Request, shape: Shape, classes: Sequence[UnlikeStages], pp: int) -> _Length:
    m = shape.microbatches(request.workload)
    held = _in_flight(shape, m, pp)
    kinds = [option.kind_seconds(pp == 1) for option in classes]
    least = min(one.waited for own in kinds for one in own) * (1 - ROUNDING)
    return _Length(
        pp, m, least, _ends(classes, kinds), tuple(min(option.max_stages, pp) for option in classes),
        tuple(_counts(shape, classes, kinds, held)),
    )  # fmt: skip


def _counts(
    shape: Shape, classes: Sequence[UnlikeStages], kinds: Sequence[Sequence[KindSeconds]], held: Sequence[InFlight]
) -> Iterator[_Count]:
    """All ways to count layers."""
    layers, share = classes[0].layers, 1.0 if shape.vpp == 1 else 1 / (2 * shape.vpp - 1)
    numbers = layers.counts(0, layers.number)
    ways = [(False, tuple(one.both for one in own)) for own in kinds]
    for slowest in sorted({one.both for one in kinds[0]}):
        ways.append((True, tuple(float(one.both >= slowest) for one in kinds[0])))
    for whole, weights in ways:
        some = [kind for kind, weight in enumerate(weights) if weight > 0]
        fastest = min(own[kind].waited for own in kinds for kind in some)
        passed = min(own[kind].waited / weights[kind] for own in kinds for kind in some)
        if shape.vpp > 1:
            passed = fastest / max(weights) * share if len(some) == len(weights) else 0.0
        yield _Count(
            whole,
            sum(weight * number for weight, number in zip(weights, numbers, strict=True)),
            tuple(max(weights[kind] / own[kind].both for kind in some) for own in kinds),
            passed,
            tuple(_capacities(option, weights, some, held) for option in classes),
        )


def _capacities(
    option: UnlikeStages, weights: Sequence[float], some: Sequence[int], held: Sequence[InFlight]
) -> tuple[float, ...]:
    """The largest weight of layers that each rank of a pipeline holds if it is on a class."""
    base, kinds = option.kind_bytes()
    room, found = option.room - base, dict[InFlight, float]()
    for pairs in held:
        if pairs not in found:
            found[pairs] = max(room * weights[kind] / max(kinds[kind].beside(*pair) for pair in pairs) for kind in some)
    return tuple(found[pairs] for pairs in held)


def _in_flight(shape: Shape, m: int, pp: int) -> list[InFlight]:
    """What each rank of a pipeline holds at least, in whole stages."""
    ranks = (schedules.in_flight(shape.schedule, rank, pp, m, shape.vpp) for rank in range(pp))
    return [tuple((held / shape.vpp, float(waits)) for held, waits in pairs) for pairs in ranks]
