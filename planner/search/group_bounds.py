"""Rules out many pipelines at once, before they are evaluated one by one.

Of thousands of pipelines that a deadline test leaves, nearly all differ in a few layers and take longer than the best plan. In
the order of their layers, neighbours are grouped, and one candidate stands for a group: each of its stages takes the least
seconds of any number of layers that a pipeline of the group has there (`Table.candidates`). The recurrence is monotone in all
seconds, so no pipeline of the group takes less. Gathers are left out, as in `PipelineEvaluation.evaluated`, and so are
recomputed layers and slowdowns by collectives. Groups that are not ruled out are divided into smaller ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.bounds.greedy_filling import Pipeline
from planner.placement.ranks import virtual_stages
from planner.search.evaluation import PipelineEvaluation, by_classes
from sim.analytic.evaluator import Ints
from sim.analytic.recurrence import ROWS, steps_and_reductions
from sim.units import Seconds

SIZES = (64, 8)
"""Pipelines of a group (a guess): groups of 64 rule out 97 to 99 % of the longest lists of hethub-768, those of 8 the rest and
nearly all of shorter ones. Larger groups rule out less, smaller ones take longer."""
ROUNDING = 1e-9
"""Fraction of a limit by which a bound must be above it: far more than the error of an extrapolated step."""


def ruled_out(evaluation: PipelineEvaluation, pipelines: Sequence[Pipeline], limit: Seconds) -> dict[Pipeline, Seconds]:
    """The pipelines that are proved to take longer than `limit`, whenever weights are gathered, with lower bounds above it.
    Raises NotModelled."""
    found: dict[Pipeline, Seconds] = {}
    for pp in sorted({len(pipeline) for pipeline in pipelines}):
        listed = [pipeline for pipeline in pipelines if len(pipeline) == pp]
        rows, bounds = _above(evaluation, listed, limit)
        found |= {listed[row]: bound for row, bound in zip(rows, bounds, strict=True)}
    return found


def _above(evaluation: PipelineEvaluation, listed: Sequence[Pipeline], limit: Seconds) -> tuple[list[int], list[Seconds]]:
    """Indices of pipelines with equally many stages that are ruled out, and their bounds."""
    distinct, which = by_classes(listed)
    layers: Ints = np.array(listed)[:, :, 1]
    virtual = virtual_stages(layers, evaluation.shape.vpp)
    left: Ints = np.lexsort((*layers.T[::-1], which))
    found, bounds = list[int](), list[Seconds]()
    for size in SIZES:
        if not len(left):
            break
        starts = _starts(which[left], size)
        least, most = (extreme.reduceat(virtual[left], starts, axis=0) for extreme in (np.minimum, np.maximum))
        seconds = np.zeros(len(starts))
        with evaluation.context.effort.spent("pipelines priced", len(starts)):
            for first in range(0, len(starts), ROWS):
                part = slice(first, first + ROWS)
                relaxed = evaluation.of_stages(distinct, which[left[starts[part]]], least[part], most=most[part])
                seconds[part], _ = steps_and_reductions(relaxed.without_gathers(), limit)
        each = np.repeat(seconds, np.diff(starts, append=len(left)))
        above = each > limit * (1 + ROUNDING)
        found, bounds, left = found + left[above].tolist(), bounds + each[above].tolist(), left[~above]
    return found, bounds


def _starts(which: Ints, size: int) -> Ints:
    """Where groups begin of at most `size` rows that follow one another and have one value of `which`, which is sorted."""
    _, begins, counts = np.unique(which, return_index=True, return_counts=True)
    within = np.arange(len(which)) - np.repeat(begins, counts)
    starts: Ints = np.flatnonzero(within % size == 0)
    return starts
