"""Local search over the stages of a pipeline: how many of each class, in which order, and with how many layers.

For fleets of many classes, of which `planner.search.generation` lists only a few orders and numbers of stages. Two descents
alternate until neither shortens the step. The first changes stages: one more or one fewer of a class, a stage moved from one
class to another, a class added, dropped, replaced or moved along the pipeline. Each changed pipeline has its layers assigned
in two ways: anew by list scheduling, and as in the pipeline before, as far as memory allows. The second descent moves single
layers. Each step of a descent evaluates all neighbours in one batch (`planner.search.evaluation`) and takes the fastest."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, permutations
from typing import TypeAlias

from planner.bounds.greedy_filling import Pipeline
from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes
from planner.search.candidates import Candidate
from planner.search.evaluation import PipelineEvaluation, evaluated_together, roles
from planner.search.generation import assigned_layers
from planner.space import lengths
from planner.space.shape import Shape
from sim.errors import NoRoute, NotModelled

Run: TypeAlias = tuple[int, tuple[int, ...]]
"""Neighbouring stages of one class: the class and the layers of each stage."""
KICKS = 2
"""Random changes of stages after which the descents begin anew (a guess)."""
Moves: TypeAlias = Callable[[Pipeline], Iterable[Pipeline]]
"""The neighbours of a pipeline."""


class StageSearch:
    """Descents over the pipelines of one shape; a `Pipeline` holds indices into all `classes` of the shape.

    No pipeline is evaluated twice: a descent that comes near the path of an earlier one stops there. `most`: pipelines that the
    descents from one start evaluate, after which they end."""

    def __init__(self, context: PlanningContext, shape: Shape, most: int):
        self.context, self.shape, self.most = context, shape, most
        self.classes = node_classes(context, shape)
        self._numbers = {option.cluster.name: i for i, option in enumerate(self.classes)}
        self._evaluations: dict[tuple[int, ...], PipelineEvaluation | None] = {}
        self._known: set[Pipeline] = set()  # those that were evaluated
        self._assigned: dict[tuple[Run, ...], tuple[Pipeline, ...]] = {}

    def improved(self, start: Candidate) -> Candidate:
        """The candidate after the descents; at least as fast on an idle network. `start` is of the same shape."""
        return self._candidate(*self._converged(*self._start(start), [self.most]))

    def restarted(self, start: Candidate) -> Candidate:
        """The candidate after more descents, each from the best pipeline so far after `KICKS` random changes of its stages, the
        same ones in each run. Reference: iterated local search (H. R. Lourenço, O. C. Martin, T. Stützle, Handbook of
        Metaheuristics, 2003, chapter 11)."""
        (least, best), left, rng = self._start(start), [self.most], random.Random(0)
        while left[0] > 0 and not self.context.limit.is_up():
            kicked = self._kicked(best, rng)
            if kicked is None:
                break
            left[0] -= 1
            seconds, found = self._converged(math.inf, kicked, left)
            if seconds < least:
                least, best = seconds, found
        return self._candidate(least, best)

    def _start(self, start: Candidate) -> tuple[float, Pipeline]:
        """(seconds, pipeline) of a candidate, with indices into all classes of the shape."""
        number = [self._numbers[option.cluster.name] for option in start.evaluation.classes]
        pipeline = tuple((number[i], layers) for i, layers in start.pipeline)
        self._known.add(pipeline)
        return start.seconds, pipeline

    def _candidate(self, seconds: float, pipeline: Pipeline) -> Candidate:
        evaluation, alike = self._evaluated(pipeline)
        return Candidate.of(evaluation, seconds, alike)

    def _converged(self, seconds: float, pipeline: Pipeline, left: list[int]) -> tuple[float, Pipeline]:
        """(seconds, pipeline) after both descents in turn, until neither shortens the step or `left` is used up."""
        before = None
        while before is None or seconds < before:
            before = seconds
            for moves in (self._stage_moves, self._layer_moves):
                seconds, pipeline = self._descended(seconds, pipeline, moves, left)
        return seconds, pipeline

    def _kicked(self, pipeline: Pipeline, rng: random.Random) -> Pipeline | None:
        """The pipeline after some random changes of stages; None where there are none."""
        for _ in range(KICKS):
            changed = list(dict.fromkeys(self._stage_moves(pipeline)))
            if not changed:
                return None
            pipeline = rng.choice(changed)
        return pipeline

    def _descended(self, seconds: float, pipeline: Pipeline, moves: Moves, left: list[int]) -> tuple[float, Pipeline]:
        """(seconds, pipeline) after the fastest neighbour has been taken as long as it is faster, or `left` is used up."""
        while left[0] > 0 and not self.context.limit.is_up():
            neighbours = [one for one in dict.fromkeys(moves(pipeline)) if one not in self._known]
            left[0] -= len(neighbours)
            try:
                fastest = self._fastest(neighbours, seconds)
            except NotModelled:
                break
            if fastest is None:
                break
            seconds, pipeline = fastest
        return seconds, pipeline

    def _fastest(self, pipelines: list[Pipeline], below: float) -> tuple[float, Pipeline] | None:
        """The fastest pipeline with its seconds, those of its busiest link included; None where none is `below`."""
        with self.context.effort.spent("pipelines priced", len(pipelines)):
            seconds = evaluated_together([self._evaluated(pipeline) for pipeline in pipelines], below)
        self._known.update(pipelines)
        found = None
        for least, pipeline in sorted(zip(seconds, pipelines, strict=True)):
            if least >= below:
                break
            evaluation, alike = self._evaluated(pipeline)
            least = max(least, evaluation.link_seconds(alike))
            if least < below:
                below, found = least, (least, pipeline)
        return found

    def _evaluation(self, stages: Iterable[int]) -> PipelineEvaluation | None:
        """The evaluation of pipelines over the classes of some stages; None where nothing joins these classes."""
        used = tuple(sorted(set(stages)))
        if used not in self._evaluations:
            try:
                self._evaluations[used] = PipelineEvaluation(self.context, self.shape, tuple(self.classes[i] for i in used))
            except NoRoute:
                self._evaluations[used] = None
        return self._evaluations[used]

    def _evaluated(self, pipeline: Pipeline) -> tuple[PipelineEvaluation, Pipeline]:
        """The evaluation of the classes of a pipeline, and the pipeline with indices into these classes."""
        used = sorted({i for i, _ in pipeline})
        evaluation = self._evaluation(used)
        assert evaluation is not None, "only pipelines with an evaluation are neighbours"
        return evaluation, tuple((used.index(i), layers) for i, layers in pipeline)

    def _stage_moves(self, pipeline: Pipeline) -> Iterator[Pipeline]:
        """Pipelines after one change of stages, each with layers assigned in two ways.

        Restarted descents meet the same changes again and again, so that their layers are assigned once."""
        for changed in _changed([option.max_stages for option in self.classes], pipeline):
            runs = tuple(changed)
            if runs not in self._assigned:
                self._assigned[runs] = tuple(self._assignments(runs))
            yield from self._assigned[runs]

    def _assignments(self, runs: Iterable[Run]) -> Iterator[Pipeline]:
        """The pipelines with these stages, whose layers are assigned anew, and kept as far as memory allows."""
        stages, sizes = zip(*((i, layers) for i, sizes in runs for layers in sizes), strict=True)
        evaluation = self._evaluation(stages) if self._is_allowed(stages) else None
        if evaluation is None:
            return
        used = sorted(set(stages))
        within = [used.index(i) for i in stages]
        listed = assigned_layers(evaluation, within)
        kept = kept_layers(evaluation, list(zip(within, sizes, strict=True)))
        if listed is not None:
            yield tuple(zip(stages, listed, strict=True))
        if kept is not None:
            yield tuple(zip(stages, (layers for _, layers in kept), strict=True))

    def _is_allowed(self, stages: Sequence[int]) -> bool:
        """Whether a pipeline of two stages or more may have these, given by their classes."""
        names = [self.classes[i].cluster.name for i in stages]
        return len(names) > 1 and lengths.allows_stages(self.context.request, self.shape, names)

    def _layer_moves(self, pipeline: Pipeline) -> Iterator[Pipeline]:
        """Pipelines with one layer moved from one stage to another with memory for it."""
        evaluation, alike = self._evaluated(pipeline)
        capacity, vpp, pp = evaluation.layer_capacity([i for i, _ in alike]), self.shape.vpp, len(pipeline)
        for a, b in permutations(range(pp), 2):
            if pipeline[a][1] > vpp and pipeline[b][1] < capacity[b]:
                moved = list(pipeline)
                moved[a], moved[b] = (pipeline[a][0], pipeline[a][1] - 1), (pipeline[b][0], pipeline[b][1] + 1)
                yield tuple(moved)


def kept_layers(evaluation: PipelineEvaluation, stages: Sequence[tuple[int, int]]) -> Pipeline | None:
    """(class, layers) of each stage, changed as little as memory and the model's layers demand; None where memory is short.

    Layers are taken from the stages that are slowest with them, and given to those that stay fastest."""
    total, least, stage_roles = evaluation.layers, evaluation.shape.vpp, roles(len(stages))
    capacity = evaluation.layer_capacity([i for i, _ in stages])
    if min(capacity) < least or sum(capacity) < total:
        return None
    fewest = evaluation.fewest([i for i, _ in stages])
    layers = [max(least, min(wanted, most)) for (_, wanted), most in zip(stages, capacity, strict=True)]

    def cycle(stage: int, more: int) -> float:
        size = layers[stage] + more
        return evaluation.classes[stages[stage][0]].cost(stage_roles[stage], size, fewest[stage][size]).cycle

    every = range(len(stages))
    for _ in range(sum(layers) - total):
        layers[max((s for s in every if layers[s] > least), key=lambda s: cycle(s, 0))] -= 1
    for _ in range(total - sum(layers)):
        layers[min((s for s in every if layers[s] < capacity[s]), key=lambda s: cycle(s, 1))] += 1
    return tuple((i, k) for (i, _), k in zip(stages, layers, strict=True))


def _changed(most: Sequence[int], pipeline: Pipeline) -> Iterator[list[Run]]:
    """The runs of a pipeline after one change of stages; `most`: stages that each class can hold."""
    runs = [(i, tuple(layers for _, layers in stages)) for i, stages in groupby(pipeline, key=lambda stage: stage[0])]
    absent = sorted(set(range(len(most))) - {i for i, _ in runs})
    for a, (i, sizes) in enumerate(runs):
        before, after = runs[:a], runs[a + 1 :]
        if len(sizes) < most[i]:
            yield [*before, _longer(runs[a]), *after]
        yield [*before, *_shorter(runs[a]), *after]
        for b, (j, others) in enumerate(runs):
            if a != b and len(others) < most[j]:  # a stage moves from class i to class j
                given = [*before, runs[a], *after]
                given[b] = _longer(runs[b])
                yield [*given[:a], *_shorter(runs[a]), *given[a + 1 :]]
            if a != b:  # class i moves to position b
                others_only = before + after
                yield [*others_only[:b], runs[a], *others_only[b:]]
            if a < b - 1:  # classes i and j change places
                swapped = list(runs)
                swapped[a], swapped[b] = runs[b], runs[a]
                yield swapped
        for j in absent:
            yield [*before, (j, sizes[: most[j]]), *after]
    for j in absent:
        for a in range(len(runs) + 1):
            yield [*runs[:a], (j, (1,)), *runs[a:]]
    yield runs[::-1]


def _longer(run: Run) -> Run:
    """A run with one stage more, as large as its last one."""
    return run[0], (*run[1], run[1][-1])


def _shorter(run: Run) -> list[Run]:
    """A run without its smallest stage; no run where it has only one."""
    least = run[1].index(min(run[1]))
    sizes = run[1][:least] + run[1][least + 1 :]
    return [(run[0], sizes)] if sizes else []
