"""All splits of layers that differ over pipelines of a few ranks, with their seconds on an idle network.

A bound on all pipelines of a length (`planner.bounds.unlike_lengths`) leaves open which of them might be as fast as it says.
Where there are few, they are listed: those whose closed form is below the fastest plan are evaluated
(`planner.search.unlike_evaluation`), and then none of that length takes less than the fastest of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from planner.bounds.rank_programme import Split
from planner.bounds.unlike_lengths import shares
from planner.bounds.unlike_stages import Pipeline
from planner.costs.context import PlanningContext
from planner.costs.unlike_layers import UnlikeStages
from planner.search.unlike_evaluation import UnlikeEvaluation
from planner.search.unlike_splits import TOO_FULL, ClosedForm
from planner.space.shape import Shape
from sim.errors import NoRoute, NotModelled
from sim.units import Seconds

FEW = 4_000
"""Most pipelines of a length that are all listed without a search for the best of them (a guess)."""
MOST = 20_000
"""Most pipelines of an order of the classes that are listed, 0.7 s of a CPU (a guess): more prove more, and take longer."""
MOST_ORDERS = 200
"""Most orders and numbers of ranks of the classes of one length that are told apart (a guess). More: slower."""
Ranks: TypeAlias = tuple[int, ...]
"""The class of each rank of a pipeline."""


def are_few(classes: Sequence[UnlikeStages], shape: Shape, pp: int) -> bool:
    """Whether all pipelines of pp ranks can be listed."""
    every = orders(classes, pp)
    return bool(every) and number_of_splits(classes, shape, pp) * len(every) <= FEW


def number_of_splits(classes: Sequence[UnlikeStages], shape: Shape, pp: int) -> int:
    """The number of splits of the layers over pp ranks of given classes."""
    total = classes[0].layers.number + classes[0].layers.further
    return math.comb(total - pp * shape.vpp + pp - 1, pp - 1)


def all_splits(classes: Sequence[UnlikeStages], shape: Shape, pp: int) -> list[Split]:
    """All of these splits; none where they are many."""
    total = classes[0].layers.number + classes[0].layers.further
    return list(shares(total, [total] * pp, shape.vpp)) if number_of_splits(classes, shape, pp) <= MOST else []


def orders(classes: Sequence[UnlikeStages], pp: int) -> list[Ranks]:
    """The classes of the ranks of all pipelines of pp ranks, those of a class consecutive; none where they are many."""
    found = list(itertools.islice(_orders(classes, pp), MOST_ORDERS + 1))
    return found if len(found) <= MOST_ORDERS else []


def listed(
    context: PlanningContext,
    shape: Shape,
    classes: Sequence[UnlikeStages],
    ranks: Ranks,
    every: Sequence[Split],
    cutoff: Seconds,
) -> list[tuple[Seconds, Pipeline]]:
    """Those of some pipelines on given classes that fit in memory, each with a lower bound in seconds; the fastest first.

    Bounds from the cutoff on may be lower than they could be. The last stages are without layers for further tokens: with
    virtual stages, of which others may have had some of these, they may have less than none."""
    evaluation = _evaluation(context, shape, classes) if len(ranks) > 1 else None
    layers, options = classes[0].layers, [classes[c] for c in ranks]
    form = ClosedForm(context, shape, options)
    closed = [(form.seconds(split)[0], split) for split in every]
    closed = [
        (seconds, split) for seconds, split in closed if seconds < TOO_FULL and (split[-1] >= layers.further or shape.vpp > 1)
    ]
    some = [pair for pair in closed if pair[0] < cutoff]
    found = [pair for pair in closed if pair[0] >= cutoff]
    if evaluation is not None and some:
        try:
            evaluated = evaluation.seconds(ranks, [split for _, split in some], cutoff).tolist()
        except NoRoute:
            return []
        some = [(max(own, seconds), split) for own, (seconds, split) in zip(evaluated, some, strict=True)]
    names = [one.cluster.name for one in options]
    return sorted(
        (seconds, tuple(zip(names, (*split[:-1], split[-1] - layers.further), strict=True))) for seconds, split in some + found
    )


def _evaluation(context: PlanningContext, shape: Shape, classes: Sequence[UnlikeStages]) -> UnlikeEvaluation | None:
    try:
        return UnlikeEvaluation(context, shape, classes)
    except NotModelled:
        return None


def _orders(classes: Sequence[UnlikeStages], pp: int) -> Iterator[Ranks]:
    for many in range(1, min(len(classes), pp) + 1):
        for order in itertools.permutations(range(len(classes)), many):
            for counts in shares(pp, [classes[c].max_stages for c in order]):
                yield tuple(c for c, count in zip(order, counts, strict=True) for _ in range(count))
