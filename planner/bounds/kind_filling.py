"""The greedy filling of pipelines with a given number of stages, over many node classes in any order.

Idea. `planner.bounds.any_order` does not know how many stages a pipeline has, so it lets pipelines have all that the devices
can hold. A schedule with virtual stages is defined for few numbers of stages only (those that divide the number of
microbatches), which are often far fewer. Here the number is given. Then the number of stages before and behind each stage is
known, and with it more of its fill, its drain, its memory and the round trips of its microbatches.

The classes are sorted by speed and divided into kinds, so that a dynamic programme has few states: for the stages that are
filled so far, their number of each kind, and the number of borders between classes that they have. It counts the stages of a
kind, not of a class, and its stages may follow one another in any order: a relaxation. But so many stages of a kind are on some
number of classes at least, with a border between each two that follow one another, and the two stages at a border send their
messages over it. Invariant: no feasible pipeline whose last stages are such leaves fewer layers to the stages before than the
programme says (the exchange argument of `planner.bounds.greedy_filling`)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import NamedTuple

from planner.bounds.greedy_filling import Filling
from planner.bounds.ordered_stages import OrderedStages
from planner.bounds.stage_sizes import StageSizes
from planner.space import lengths

STATES = 60
"""Most numbers of stages of the kinds (a guess): 400 took twice as long on eight cities, with a bound that is 1.8 % higher."""
MORE_STATES = 700
"""The same for a variant with the least bound, where all classes would be one kind (a guess): two kinds of 24 stages, so that
the stages of four slow classes on 102,400 devices are not taken for those of four fast ones. On eight cities, which are several
kinds, it takes too long."""

NEAR = 0.01
"""Relative width at which the bisection for the bound of all numbers of stages stops (a guess)."""
NEARER = 0.002
"""The same for a variant with the least bound, whose bound may be that of the certificate (a guess)."""


class Filled(NamedTuple):
    """The stages that are filled: how many of each kind, how many borders they have, and the kind of the class that the next
    stage, too, is on; None where it is on another class."""

    of_kind: tuple[int, ...]
    borders: int
    kind: int | None


class KindFilling(Filling):
    """Layers on the `pp` stages of a pipeline on two or more classes in any order (`OrderedStages.in_any_order`) within
    `seconds`."""

    def __init__(self, stages: OrderedStages, seconds: float, pp: int, kinds: list[list[int]]):
        super().__init__(stages, seconds, stages.max_stages, pp)
        self.length, self.exact, self.counted, self.kinds = pp, False, True, kinds
        between, classes = stages.neighbours.between, range(len(self.counts))
        self._inside = [between[i][i] for i in classes]
        self._outside = [min(between[i][j] for j in classes if j != i) for i in classes]
        self._hop = min(*self._inside, *self._outside)
        self._border = self.wrap = min(self._outside)  # the first stage is on another class than the last one
        self._ends = [[*accumulate(sorted((stages.max_stages[i] for i in kind), reverse=True))] for kind in self.kinds]
        self._fewest = _fewest_classes([*accumulate(sorted(stages.max_stages, reverse=True))], pp) - 1
        self._ahead = self._back = 0.0
        self.round_rate = [min(both for _, both, _ in stages.rates)] * len(self.counts)
        self.longest = [max(1, *self.most) for _ in classes]
        self.by_rate = [[sorted((stages.rates[c][which], c) for c in classes)] * len(self.counts) for which in (0, 1, 2)]

    def succeeds(self) -> bool:
        """Whether the stages can hold all layers."""
        if not self._computable() or not math.isfinite(self._border):
            return False
        least = {Filled((0,) * len(self.kinds), 0, None): self.stages.layers}
        for after in range(self.length - 1):
            found: dict[Filled, int] = {}
            most = max(self.most) * (self.length - 1 - after)  # layers of the stages before
            for filled, left in least.items():
                for kind, i, of_kind in self._next(filled):
                    for crosses in (False, True):
                        now = Filled(of_kind, filled.borders + crosses, None if crosses else kind)
                        best = found.get(now, most + 1)
                        if left - self.most[i] < best and self._place(i, filled, after, crosses):
                            before = self.fewest_before(i, "middle" if after else "last", left, after)
                            if before is not None and before < best:
                                found[now] = before
            least = found
        after = self.length - 1
        return any(
            filled.borders and self._place(i, filled, after, False) and self._fits(i, "first", left, left, after)
            for filled, left in least.items()
            for _, i, _ in self._next(filled)
        )

    def _next(self, filled: Filled) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """(kind, class, stages of each kind with it) of each stage that may be before the filled ones."""
        for kind, classes in enumerate(self.kinds):
            of_kind = tuple(number + (k == kind) for k, number in enumerate(filled.of_kind))
            possible = filled.kind in (None, kind) and of_kind[kind] <= self._ends[kind][-1]
            if possible and sum(map(_fewest_classes, self._ends, of_kind)) <= filled.borders + 1:
                yield from ((kind, i, of_kind) for i in classes)

    def _place(self, i: int, filled: Filled, after: int, crosses: bool) -> bool:
        """Let the next stage be of class i, and the stage before it of another one if it `crosses` a border; whether it can."""
        before = self.length - 1 - after
        self._ahead = 0.0 if not after else self._outside[i] if filled.kind is None else self._inside[i]
        self._back = 0.0 if not before else self._outside[i] if crosses else self._inside[i]
        if not math.isfinite(self._ahead + self._back) or filled.borders + crosses >= len(self.counts):
            return False
        borders = min(max(self._fewest - filled.borders, crosses), before)
        self.earlier, self.stages_before = [before] * len(self.counts), [before + 1] * len(self.counts)
        self.borders = [self._passed(before, borders)] * len(self.counts)
        self._passed_behind = self._passed(after, filled.borders)
        return True

    def _passed(self, hops: int, borders: int) -> float:
        """Least seconds of the messages of a microbatch over so many hops, of which so many or more cross borders."""
        return borders * self._border + (hops - borders) * self._hop

    def sizes(self, i: int, role: str, after: int) -> StageSizes:
        """Seconds of the stage that is placed by its layers, with its messages."""
        sends = self.stages.sending(self._ahead, self._back, self.length - 1 - after, self.length)
        return self.stages.sizes(i, role, after, self.pp, sends)

    def back(self, i: int) -> float:
        """Least seconds of the message of the stage that is placed to the stage before it."""
        return self._back

    def _messages_behind(self, after: int) -> float:
        return self._passed_behind

    def _computable(self) -> bool:
        """Whether the stages that hold most by compute alone hold all layers."""
        most = sorted((most for most, count in zip(self.most, self.counts, strict=True) for _ in range(count)), reverse=True)
        return len(most) >= self.length and sum(most[: self.length]) >= self.stages.layers


def _fewest_classes(ends: list[int], number: int) -> int:
    """Fewest classes with so many stages; ends: most stages of one class, two classes and so on."""
    return sum(end < number for end in ends) + 1 if number else 0


def kinds_of(stages: OrderedStages, states: int = STATES) -> list[list[int]]:
    """Classes by kind, each sorted by their seconds for a layer: the most similar ones are joined until the stages of each kind
    can have at most so many numbers."""
    seconds = [option.layer_seconds for option in stages.order]
    kinds = [[i] for i in sorted(range(len(seconds)), key=lambda i: seconds[i])]
    while math.prod(1 + sum(stages.max_stages[i] for i in kind) for kind in kinds) > states and len(kinds) > 1:
        gaps = [seconds[after[0]] / seconds[before[0]] for before, after in pairwise(kinds)]
        nearest = gaps.index(min(gaps))
        kinds[nearest : nearest + 2] = [kinds[nearest] + kinds[nearest + 1]]
    return kinds


def defined_lengths(stages: OrderedStages) -> Iterator[int]:
    """Numbers of stages that the schedule, the pins and the limits of a request allow, the longest first."""
    most = min(sum(stages.max_stages), stages.layers // stages.vpp, stages.longest or stages.layers)
    for pp in range(most, 1, -1):
        if stages.shape.is_defined(stages.m, pp) and lengths.allows(stages.context.request, stages.shape, pp):
            yield pp


def may_have_some_length(stages: OrderedStages, seconds: float) -> bool:
    """Whether a pipeline with some number of stages might finish within `seconds` (False is a proof that none does)."""
    kinds = kinds_of(stages)
    return any(KindFilling(stages, seconds, pp, kinds).succeeds() for pp in defined_lengths(stages))


def least_of_lengths(stages: OrderedStages, least: float, cutoff: float, near: float = NEAR, states: int = STATES) -> float:
    """A lower bound in seconds on the step of the pipelines with every number of stages: at least `least`, a known bound, and
    at most `cutoff`. near: relative width at which the bisection stops; states: most numbers of stages of the kinds.

    Neighbouring numbers have similar bounds, so the next one is bisected from the bound of those before. Three quarters of the
    most stages come first: few numbers after them have lower bounds (a guess)."""
    every, kinds, bound = [*defined_lengths(stages)], kinds_of(stages, states), cutoff
    for pp in sorted(every, key=lambda pp: pp != max(every) * 3 // 4):
        low = high = bound
        step = near
        while low > least and KindFilling(stages, low, pp, kinds).succeeds():
            low, high, step = max(least, low / (1 + step)), low, 2 * step
        while high > low * (1 + near):
            middle = math.sqrt(low * high)
            low, high = (low, middle) if KindFilling(stages, middle, pp, kinds).succeeds() else (middle, high)
        bound = low
    return max(least, bound)
