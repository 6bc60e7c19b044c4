"""Which numbers of layers the stages of a placement with mixed stages may have, if a step ends within T seconds, by its paths.

A replica has m microbatches. Tasks that follow one another are a path, and no step is shorter than one. With F, B and a
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

Where replicas may have numbers of their own, each path leaves a replica some number at most, and those of all replicas together
must be the microbatches of the step. Each stage may distribute them by itself, a relaxation.

Where a schedule splits the backward, B of other stages counts only together with their F, as far as no weight gradient is put
off. Reference for the longest paths: Baccelli, Cohen, Olsder, Quadrat, Synchronization and Linearity, 1992."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.bounds.mixed_filling import PlacedStages
from planner.bounds.path_stages import Floats, Numbers, OneStage, most_microbatches, stages_of
from planner.bounds.placed_deadline import DeadlineOf

Allowed = NDArray[np.bool_]
"""Whether a stage may have a number of layers, shape (layers before it, its layers)."""
ROUNDED = 1e-9
"""Relative error of a sum of seconds, or of microbatches, above that of floats."""


Ways: TypeAlias = tuple[Floats, Floats, Floats]
"""Three ways from a stage, by the layers on their side of it: as `Paths` computes them."""


def allowed_layers(stages: PlacedStages, test: DeadlineOf) -> list[dict[int, list[int]]]:
    """For each stage: layers of it and those before it -> numbers of layers that it may hold then; those of the first stage are
    empty where no split holds.

    test: the deadline, with the most layers of each stage."""
    paths = Paths(stages, test)
    paths.from_behind()
    paths.from_the_front()
    paths.from_behind()
    paths.by_neighbours()
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


class Paths:
    """The longest paths of a step. `allowed`: for each stage, what was not dropped."""

    def __init__(self, stages: PlacedStages, test: DeadlineOf):
        self.stages, self.seconds = stages, test.seconds * (1 + ROUNDED)
        self.replicas = np.array(stages.replicas)[:, None, None]
        self.most = most_microbatches(stages)
        self.each = stages_of(stages, test, self.most)
        groups, self.inputs = len(stages.groups), stages.inputs
        self.allowed = [np.ones((len(one.before), one.forward.shape[-1]), bool) for one in self.each]
        nothing = np.zeros((groups, 1, 1))
        self._front: list[Ways] = [(nothing, nothing, nothing)]
        self._behind: list[Ways] = [(nothing, nothing, nothing)] * (len(self.each) + 1)
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

    def by_neighbours(self) -> None:
        """Drop the numbers of layers with which no stages behind finish in time, where a stage's waits for held messages depend
        on the layers of the next one (`planner.bounds.stage_messages`)."""
        for number in reversed(range(len(self.each) - 1)):
            one, there = self.each[number], self.each[number + 1]
            if not self.stages.alike or not any(held.number and held.both for held in one.holds):
                continue
            rows, able = _rows(one, there.before)
            fits, front, behind, many = np.zeros_like(able), self._front[number], self._next(number), np.array(self.most)
            for k in np.flatnonzero(self.allowed[number + 1].any(axis=0)).tolist():
                beside = replace(one, held=_held_beside(one, there, k, number + 2 == len(self.each)))
                in_time = self._longest(beside, front, behind, many).max(axis=0) <= self.seconds
                fits |= able & in_time & self.allowed[number + 1][rows, k]
            self.allowed[number] &= fits

    def _after(self, number: int) -> Ways:
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

    def _next(self, number: int) -> Ways:
        """What is behind a stage, by the layers before it and its own: see `_with`."""
        one, ways = self.each[number], self._behind[number + 1]
        following = (
            self.each[number + 1].before if number + 1 < len(self.each) else range(self.stages.layers, self.stages.layers + 1)
        )
        rows, able = _rows(one, following)
        trip, back, ends = (np.where(able, way[:, rows, 0], np.inf) for way in ways)
        return trip, back, ends

    def _with(self, number: int, behind: Ways) -> Ways:
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

    def _drop(self, number: int, behind: Ways) -> None:
        """Drop the numbers of layers of a stage with which a path takes longer than the deadline."""
        one, front, stages = self.each[number], self._front[number], self.stages
        if stages.alike:
            many = np.array(self.most)
            self.allowed[number] &= self._longest(one, front, behind, many).max(axis=0) <= self.seconds
            return
        low = np.zeros((len(stages.groups), *self.allowed[number].shape), np.int64)
        high = np.full_like(low, self.most + 1)
        while (high - low > 1).any():
            middle = (low + high) // 2
            able = self._longest(one, front, behind, np.minimum(middle, self.most)) <= self.seconds
            low, high = np.where(able, middle, low), np.where(able, high, middle)
        run = np.where(low >= self.most, np.inf, low)
        run = np.minimum(run, self.seconds / np.where(one.lane > 0, one.lane, np.nan), out=run, where=one.lane > 0)
        enough = (self.replicas * run).sum(axis=0) * (1 + ROUNDED) >= stages.total
        self.allowed[number] &= enough & (low.min(axis=0) > 0)

    def _longest(self, one: OneStage, front: Ways, behind: Ways, m: Numbers) -> Floats:
        """The longest path through a stage with so many microbatches of a replica. It never falls with them."""
        cycle, splits, left, between = one.both + one.sent, self.stages.splits, one.left[m], one.between[m]
        cycles = m * cycle + one.held
        (first, after, through), (trip, back, ends) = front, behind
        first = np.maximum(first, one.gathers)
        turn = np.maximum(first + one.forward + trip, back)
        waits = left * (one.forward + one.sent - one.sent_back) + (m - 1) * one.sent_back + one.held
        inputs = np.maximum((one.forward + one.backward) * self.inputs - one.forward, 0.0)
        whole = np.maximum(one.reductions, 0.0 if splits else after)
        found = [
            turn + waits + m * one.backward + whole,
            first + cycles - one.sent_back + whole,
            one.forward + trip + waits + m * inputs + through,
            cycles * self.inputs + through - one.sent_back,
            one.link[0] + one.forward * one.share + one.backward + cycles - cycle + one.reductions,
            one.link[1] + (cycles - cycle) * self.inputs,
        ]
        last = first + m * one.forward + (m - 1) * (one.sent - one.sent_back) + one.held
        if splits:
            found.append(turn + waits + m * inputs + after)
        else:
            further = between * cycle + one.held - (one.sent - one.sent_back)
            second = np.where(between > 0, turn + further, 0.0)
            last = np.maximum(last, second)
            two = np.where(between > 0, one.forward + 2 * trip + further + through, 0.0)
            found += [np.where(between > 0, second + trip + whole, 0.0) + one.backward, two + one.backward]
        return functools.reduce(np.maximum, found, last + ends)


def _rows(one: OneStage, following: range) -> tuple[Numbers, Allowed]:
    """For the layers before a stage and its own: the index of the layers up to it among those that may be before the next
    stage, and whether they may be."""
    rows = np.array(one.before)[:, None] + np.arange(1, one.forward.shape[-1] + 1) - following.start
    able = (rows >= 0) & (rows < len(following))
    return np.where(able, rows, 0), able


def _held_beside(one: OneStage, there: OneStage, k: int, is_last: bool) -> Floats:
    """Seconds for which each group waits on a stage for held messages, where the next stage, which may be the last one, has the
    k-th number of layers."""
    until = (there.forward + there.backward)[:, 0, k] + (0.0 if is_last else (there.sent - there.sent_back)[:, 0, 0])
    holds = (held._replace(until=float(seconds)) for held, seconds in zip(one.holds, until, strict=True))
    passes, backward = (np.broadcast_to(whole[:, 0, :], one.held[:, 0, :].shape) for whole in (one.both, one.backward))
    found = [held.of_many(*own) for held, *own in zip(holds, passes, backward, strict=True)]
    return np.array(found)[:, None, :]
