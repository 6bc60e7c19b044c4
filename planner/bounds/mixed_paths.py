"""Which numbers of layers the stages of a placement with mixed stages may have, if a step ends within T seconds, by its paths.

All replicas have m microbatches. Tasks that follow one another are a path, and no step is shorter than one. With F, B and a
cycle c = F + B + sends on stage s, and gathers of weights that let the first forward of a stage end no sooner than G + F, and
reductions that end R seconds after its last backward (`sim.analytic.stage_costs.StageCost`), each replica takes at least

    first forward      f = max(G of s, way to s after the gathers of any stage before)
    first backward     b = max(f + F + round trip behind s, way back to s after the gathers of any stage behind)
    last forward       l = max(f + m F + sends, b + n c - send)
    step               b + (forwards after the first backward) F + m B + waits + e,     f + m c - send + e,
                       l + round trip + B + e,     l + way over the last stage to any stage behind + its R
    after the last backward of s     e = max(R of s, way to any stage before + its R)

with n microbatches between the first backward and the last forward (`planner.bounds.mixed_splits`). A dynamic programme over
(stage, layers of the stages before it) gives each way: from the first stage on, the least seconds of what is before a stage,
and from the last stage back, the least seconds of what is behind it. A number of layers of a stage, with a number before it,
is dropped where a path takes longer than T; ways over it no longer count, so that more may be dropped. Invariant: no split of
the layers that finishes within T is dropped, since its own ways are among those of which the least is taken.

Where a schedule splits the backward, B of other stages counts only together with their F, as far as no weight gradient is put
off. Reference for the longest paths: Baccelli, Cohen, Olsder, Quadrat, Synchronization and Linearity, 1992."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.bounds.mixed_filling import PlacedStages
from planner.bounds.placed_deadline import DeadlineOf
from planner.costs.mixed_rings import least_together
from sim.plan import schedules
from sim.units import Seconds

Floats = NDArray[np.float64]
"""Seconds; the axes are (groups of replicas, layers before the stage, layers of the stage), as far as they differ."""
Allowed = NDArray[np.bool_]
"""Whether a stage may have a number of layers, shape (layers before it, its layers)."""
ROUNDED = 1e-9
"""Relative error of a sum of seconds."""


def allowed_layers(stages: PlacedStages, test: DeadlineOf) -> list[dict[int, list[int]]]:
    """For each stage: layers of it and those before it -> numbers of layers that it may hold then; those of the first stage are
    empty where no split holds.

    stages: of replicas with equal numbers of microbatches; test: the deadline, with the most layers of each stage."""
    paths = Paths(stages, test)
    paths.from_behind()
    paths.from_the_front()
    paths.from_behind()
    if not all(allowed.any() for allowed in paths.allowed):
        return [{} for _ in paths.each]
    found: list[dict[int, list[int]]] = []
    for one, allowed in zip(paths.each, paths.allowed, strict=True):
        own: dict[int, list[int]] = {}
        for row, column in np.argwhere(allowed).tolist():
            own.setdefault(one.before.start + row + column + 1, []).append(column + 1)
        found.append(own)
    return found


def size_of(stages: PlacedStages, most: Sequence[int]) -> int:
    """Numbers of layers of all stages, each with numbers of layers before it and for each group of replicas. most: layers that
    each stage may have."""
    before = sum(most) - stages.layers + 1
    return sum(largest * min(before, stages.layers) for largest in most) * len(stages.groups)


@dataclass(frozen=True, slots=True)
class OneStage:
    """A stage with 1, 2, ... layers, for each group of replicas.

    before: layers that the stages before it may have. Seconds of its passes (`both`: no less than both passes together), of
    its `gathers` and of its `reductions`, which a tied embedding's sum follows. Seconds of the messages to it from the stage
    before (`ahead`) and from it to that stage (`back`), and those that a rank waits for: `sent`, of which `sent_back`. Forwards
    `left` after its first backward, and microbatches `between` it and the last forward. link: least seconds of the links whose
    last stage it is, for gathers alone and for all; share: of its forward, that follows its gathers."""

    before: range
    forward: Floats
    backward: Floats
    both: Floats
    gathers: Floats
    reductions: Floats
    ahead: Floats
    back: Floats
    sent: Floats
    sent_back: Floats
    left: int
    between: int
    link: tuple[Floats, Floats]
    share: Floats


class Paths:
    """The longest paths of a step. `allowed`: for each stage, what was not dropped."""

    def __init__(self, stages: PlacedStages, test: DeadlineOf):
        self.stages, self.seconds = stages, test.seconds * (1 + ROUNDED)
        self.many = stages.total // sum(stages.replicas)
        self.each = list(_stages(stages, test, self.many))
        groups, self.inputs = len(stages.groups), stages.inputs
        self.allowed = [np.ones((len(one.before), one.forward.shape[-1]), bool) for one in self.each]
        nothing = np.zeros((groups, 1, 1))
        self._front: list[tuple[Floats, Floats, Floats]] = [(nothing, nothing, nothing)]
        self._behind: list[tuple[Floats, Floats, Floats]] = [(nothing, nothing, nothing)] * (len(self.each) + 1)
        for number in range(len(self.each) - 1):
            self._front.append(self._after(number))

    def from_behind(self) -> None:
        """Test the stages from the last to the first."""
        for number in reversed(range(len(self.each))):
            behind = self._next(number)
            self._drop(number, behind)
            self._behind[number] = self._with(number, behind)

    def from_the_front(self) -> None:
        """Test the stages from the first to the last."""
        for number in range(len(self.each)):
            self._drop(number, self._next(number))
            if number + 1 < len(self.each):
                self._front[number + 1] = self._after(number)

    def _after(self, number: int) -> tuple[Floats, Floats, Floats]:
        """What is before the next stage, by the layers of all stages before it: least seconds until its first forward, from its
        last backward to the end of the step, and of both ways through the stages before."""
        one, there = self.each[number], self.each[number + 1]
        first, after, through = self._front[number]
        sizes = one.forward.shape[-1]
        rows = np.array(there.before)[:, None] - np.arange(1, sizes + 1) - one.before.start
        able = (rows >= 0) & (rows < len(one.before))
        rows = np.where(able, rows, 0)
        able &= self.allowed[number][rows, np.arange(sizes)]
        first, after, through = (way[:, rows, 0] for way in (first, after, through))

        def least(seconds: Floats, message: Floats) -> Floats:
            found: Floats = np.where(able, seconds + message, np.inf).min(axis=-1, keepdims=True)
            return found

        ends = np.maximum(one.reductions, after) + (0.0 if self.stages.splits else one.backward)
        return (
            least(np.maximum(first, one.gathers) + one.forward, there.ahead),
            least(ends, there.back),
            least(through + self._passes(one), there.ahead + there.back),
        )

    def _next(self, number: int) -> tuple[Floats, Floats, Floats]:
        """What is behind a stage, by the layers before it and its own: see `_with`."""
        one, ways = self.each[number], self._behind[number + 1]
        following = (
            self.each[number + 1].before if number + 1 < len(self.each) else range(self.stages.layers, self.stages.layers + 1)
        )
        rows = np.array(one.before)[:, None] + np.arange(1, one.forward.shape[-1] + 1) - following.start
        able = (rows >= 0) & (rows < len(following))
        rows = np.where(able, rows, 0)
        trip, back, ends = (np.where(able, way[:, rows, 0], np.inf) for way in ways)
        return trip, back, ends

    def _with(self, number: int, behind: tuple[Floats, Floats, Floats]) -> tuple[Floats, Floats, Floats]:
        """What is behind the stage before, by the layers up to it: least seconds of a round trip, until the first backward that
        returns to it by the gathers of stages behind, and from its last forward to the end of the step by their reductions."""
        one, able = self.each[number], self.allowed[number]
        trip, back, ends = behind
        alone = 0.0 if self.stages.splits else one.backward

        def least(seconds: Floats, message: Floats) -> Floats:
            found: Floats = np.where(able, seconds + message, np.inf).min(axis=-1, keepdims=True)
            return found

        return (
            least(trip + self._passes(one), one.ahead + one.back),
            least(np.maximum(one.gathers + one.forward + trip, back) + alone, one.back),
            least(one.forward + np.maximum(ends, trip + alone + one.reductions), one.ahead),
        )

    def _passes(self, one: OneStage) -> Floats:
        """Least seconds of a forward and of gradients of inputs."""
        return one.both * self.inputs

    def _drop(self, number: int, behind: tuple[Floats, Floats, Floats]) -> None:
        """Drop the numbers of layers of a stage with which a path takes longer than the deadline."""
        found = self._longest(self.each[number], self._front[number], behind).max(axis=0)
        self.allowed[number] &= found <= self.seconds

    def _longest(self, one: OneStage, front: tuple[Floats, Floats, Floats], behind: tuple[Floats, Floats, Floats]) -> Floats:
        """The longest path through a stage."""
        m, cycle, splits = self.many, one.both + one.sent, self.stages.splits
        (first, after, through), (trip, back, ends) = front, behind
        first = np.maximum(first, one.gathers)
        turn = np.maximum(first + one.forward + trip, back)
        waits = one.left * (one.forward + one.sent - one.sent_back) + (m - 1) * one.sent_back
        inputs = np.maximum((one.forward + one.backward) * self.inputs - one.forward, 0.0)
        whole = np.maximum(one.reductions, 0.0 if splits else after)
        found = [
            turn + waits + m * one.backward + whole,
            first + m * cycle - one.sent_back + whole,
            one.forward + trip + waits + m * inputs + through,
            m * cycle * self.inputs + through - one.sent_back,
            one.link[0] + one.forward * one.share + one.backward + (m - 1) * cycle + one.reductions,
            one.link[1] + (m - 1) * cycle * self.inputs,
        ]
        last = first + m * one.forward + (m - 1) * (one.sent - one.sent_back)
        if splits:
            found.append(turn + waits + m * inputs + after)
        elif one.between:
            cycles = one.between * cycle - (one.sent - one.sent_back)
            last = np.maximum(last, turn + cycles)
            found += [turn + cycles + trip + one.backward + whole, one.forward + 2 * trip + cycles + one.backward + through]
        return functools.reduce(np.maximum, found, last + ends)


def _stages(stages: PlacedStages, test: DeadlineOf, many: int) -> list[OneStage]:
    most, layers, found = test.most, stages.layers, list[OneStage]()
    names = [one.NAME for one in stages.schedules]
    for stage, largest in enumerate(most):
        ks, rows = np.arange(1, largest + 1), [group[stage] for group in stages.groups]
        least = max(stage, layers - sum(most[stage:]))
        before = range(least, max(min(sum(most[:stage]), layers - (len(most) - stage)), least) + 1)

        def column(values: Sequence[Seconds]) -> Floats:
            return np.array(values, float)[:, None, None]

        def passes(pairs: Sequence[tuple[Seconds, Seconds]], ks: NDArray[np.int64] = ks) -> Floats:
            return np.array([start + ks * each for start, each in pairs])[:, None, :]

        begins, tails, shares = np.array([stages.around(stage, k) for k in ks.tolist()]).T
        former = [group[stage - 1] for group in stages.groups] if stage else rows
        which = stage, len(most), many
        found.append(
            OneStage(
                before,
                passes([one.forward for one in rows]),
                passes([one.backward for one in rows]),
                passes([(one.start, one.each) for one in rows]),
                begins,
                tails + column([one.tied for one in rows]),
                column([one.arrived - other.arrived for one, other in zip(rows, former, strict=True)]),
                column([one.returned - other.returned for one, other in zip(rows, former, strict=True)]),
                column([one.sent for one in rows]),
                column([one.back for one in rows]),
                min(forwards_left(name, *which) for name in names),
                min(microbatches_between(name, *which) for name in names),
                _link_seconds(stages, stage, test, np.array(before)[:, None], ks),
                shares,
            )
        )
    return found


def _link_seconds(
    stages: PlacedStages, stage: int, test: DeadlineOf, before: NDArray[np.int64], ks: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """Least seconds of the links whose last stage this is, for gathers before its first forward ends and for all gathers and
    reductions, by the layers before it and its own. The other stages of a link have at least the layers that those which do
    not load it cannot hold."""
    links = stages.ending.get(stage, [])
    gathers, both = (np.zeros((len(before), len(ks))) for _ in range(2))
    for link, outside in zip(links, test.outside(stage, 0, links), strict=True):
        *others, last = link
        shared = [least_together(others, held) for held in (before[:, 0] - outside).tolist()]
        more = np.array([(one.gathers, one.both) for one in shared])
        gathers = np.maximum(gathers, last.gather_fixed + last.gather_each * ks + more[:, :1])
        both = np.maximum(both, last.fixed + last.each * ks + more[:, 1:])
    return gathers, both


@functools.lru_cache(maxsize=4096)
def forwards_left(name: str, stage: int, pp: int, microbatches: int) -> int:
    """Number of forwards of a stage after its first backward."""
    kinds = [action.kind for action in schedules.actions(name, stage, pp, microbatches, 1)]
    return kinds[kinds.index("B") :].count("F")


@functools.lru_cache(maxsize=4096)
def microbatches_between(name: str, stage: int, pp: int, microbatches: int) -> int:
    """Least number of forwards, and of backwards, of a stage from its first backward to its last forward; 0 where that is
    before it."""
    kinds = [action.kind for action in schedules.actions(name, stage, pp, microbatches, 1) if action.kind in ("F", "B")]
    first, end = kinds.index("B"), len(kinds) - kinds[::-1].index("F")
    return min(kinds[first:end].count(kind) for kind in "FB")
