"""Candidates under schedule zb-latency, whose warm-ups follow the borders between clusters (`sim.plan.schedules.zb_latency`).

A stage begins with a forward for each hop behind it, and with several for a hop that crosses a border. The search over stages
runs with these warm-ups fixed; then they are chosen anew for the pipeline that it found, as long as that shortens the step.
The schedule is no part of the searched space of the certificate: its plans come on top."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate, pairwise

from planner.costs.context import PlanningContext
from planner.costs.node_classes import under
from planner.search.budgets import Budgets
from planner.search.candidates import Candidate, priced
from planner.search.evaluation import PipelineEvaluation
from planner.search.stage_search import StageSearch, kept_layers
from planner.space.runnable import runs
from planner.space.shapes import recomputations
from sim.errors import NotModelled
from sim.plan.parallel_config import BLOCK
from sim.plan.schedules import zb_latency

BORDERS = (2, 3, 4, 6)
"""Forwards for a hop between clusters, where a hop inside a cluster has one (guesses). More of them hold more microbatches."""


def latency_candidates(context: PlanningContext, found: Sequence[Candidate], budgets: Budgets) -> list[Candidate]:
    """Candidates under zb-latency on the stages of the best candidates found so far; empty where the schedule is pinned.

    Activations are recomputed only where the stages do not fit otherwise."""
    if context.request.wishes.schedule is not None or not context.request.limits.allows("schedule", zb_latency.NAME):
        return []
    unlike = {
        (one.shape.tp, one.shape.cluster_tp, one.shape.dp, one.shape.microbatch_size, one.stages): one
        for one in reversed(found)
    }
    best = sorted(unlike.values(), key=lambda candidate: candidate.seconds)[: budgets.latency_pipelines]
    starts = list[Candidate]()
    for one in best:
        able = recomputations(context.request, by_stage=True)
        able = ("none", BLOCK) if able == (BLOCK,) else able
        fitting = (list(_tuned(one, recompute, BORDERS)) for recompute in able)
        starts += sorted(next(filter(None, fitting), []), key=lambda candidate: candidate.seconds)[:1]
    starts.sort(key=lambda candidate: candidate.seconds)
    return [_improved(start, budgets) for start in starts[: budgets.latency_starts]]


def _improved(candidate: Candidate, budgets: Budgets) -> Candidate:
    """The candidate after the search over stages and new warm-ups, in turn as long as the step becomes shorter."""
    context, least = candidate.evaluation.context, math.inf
    while candidate.seconds < least and not context.limit.is_up():
        candidate = StageSearch(context, candidate.shape, budgets.restaged_pipelines).improved(candidate)
        least = candidate.seconds
        others = _tuned(candidate, candidate.shape.recompute, BORDERS)
        candidate = min([candidate, *others], key=lambda one: one.seconds)
    return candidate


def _tuned(candidate: Candidate, recompute: str, borders: Iterable[int]) -> Iterator[Candidate]:
    """The candidate with warm-ups for its stages, and with its layers changed where memory demands it."""
    for border in borders:
        warm_ups = _warm_ups(candidate.evaluation, [i for i, _ in candidate.pipeline], border)
        shape = replace(candidate.shape, schedule=zb_latency.name_of(warm_ups), recompute=recompute)
        context = candidate.evaluation.context
        if not runs(context.request, shape, len(candidate.pipeline)):
            return
        classes = under(context, shape, candidate.evaluation.classes)
        evaluation = PipelineEvaluation(context, shape, classes)
        layers = kept_layers(evaluation, candidate.pipeline)
        if layers is not None:
            with suppress(NotModelled):
                yield from priced(context, shape, classes, [layers], 1)


def _warm_ups(evaluation: PipelineEvaluation, stages: Sequence[int], border: int) -> tuple[int, ...]:
    """Forwards that each stage begins with: one for each hop behind it, `border` for one between two classes."""
    hops = (1 if here == behind else border for here, behind in pairwise(reversed(stages)))
    return tuple(min(evaluation.microbatches, warm_up) for warm_up in accumulate(hops, initial=0))[::-1]
