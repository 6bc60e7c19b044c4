"""Local search over the layers of a candidate's stages: steepest descent, one layer moved between two stages at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator

from planner.bounds.greedy_filling import Pipeline
from planner.costs.node_classes import under
from planner.search.candidates import Candidate, priced
from planner.search.evaluation import roles
from planner.space.runnable import runs
from planner.space.shapes import overlaps
from sim.errors import NotModelled

ROUNDS = 40
"""Maximum number of layers moved for one candidate (a guess). A larger number helps poor candidates only, and takes longer."""
GIVERS = 4
"""Number of slowest stages from which a layer may be moved, beside the first and the last (a guess). More take longer."""


def improved(candidates: list[Candidate], most: int) -> list[Candidate]:
    """The `most` fastest candidates, each with parameter gathers before the forwards and after the optimizer (`overlaps`),
    after local search."""
    fastest = sorted(candidates, key=lambda candidate: candidate.seconds)[:most]
    return [_descended(start) for candidate in fastest for start in _either(candidate)]


def _either(candidate: Candidate) -> Iterator[Candidate]:
    """The candidate, then the same pipeline with its parameter gathers at the other time, if the evaluator models it."""
    yield candidate
    context, classes = candidate.evaluation.context, candidate.evaluation.classes
    others = overlaps(candidate.shape)[1:]
    for shape in (one for one in others if runs(context.request, one, len(candidate.pipeline))):
        try:
            other = priced(context, shape, under(context, shape, classes), [candidate.pipeline], 1)
        except NotModelled:
            continue
        yield from other


def _descended(candidate: Candidate) -> Candidate:
    """The candidate after the best single move of a layer has been made as long as it shortens the step and there is time."""
    evaluation, pipeline, seconds = candidate.evaluation, candidate.pipeline, candidate.seconds
    capacity = evaluation.layer_capacity([i for i, _ in pipeline])
    for _ in range(ROUNDS if len(pipeline) > 1 else 0):
        if evaluation.context.limit.is_up():
            break
        neighbours = list(_neighbours(candidate, pipeline, capacity))
        try:
            best = evaluation.evaluated(neighbours, seconds)[0] if neighbours else (math.inf, pipeline)
        except NotModelled:
            break
        if best[0] >= seconds:
            break
        seconds, pipeline = best
    return Candidate.of(evaluation, seconds, pipeline)


def _neighbours(candidate: Candidate, pipeline: Pipeline, capacity: list[int]) -> Iterator[Pipeline]:
    """Pipelines with one layer moved from one of the slowest stages, the first or the last to any stage with memory for it."""
    classes, vpp, pp = candidate.evaluation.classes, candidate.shape.vpp, len(pipeline)
    fewest = candidate.evaluation.fewest([i for i, _ in pipeline])
    cycles = [
        classes[i].cost(role, layers, counts[layers]).cycle
        for (i, layers), role, counts in zip(pipeline, roles(pp), fewest, strict=True)
    ]
    slowest_first = sorted(range(pp), key=lambda stage: -cycles[stage])
    for a in dict.fromkeys((*slowest_first[:GIVERS], 0, pp - 1)):
        for b in range(pp):
            if a != b and pipeline[a][1] > vpp and pipeline[b][1] < capacity[b]:
                moved = list(pipeline)
                moved[a], moved[b] = (pipeline[a][0], pipeline[a][1] - 1), (pipeline[b][0], pipeline[b][1] + 1)
                yield tuple(moved)
