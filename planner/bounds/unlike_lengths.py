"""Bounds on pipelines of a model whose layers differ, by number of ranks: by their ranks, and by their busiest link.

`planner.bounds.unlike_ranks` bounds pipelines by what their ranks compute and wait for. Besides, a link carries the messages of
m microbatches in no less than m times the seconds of one microbatch's; where a pipeline crosses a slow border, these are often
more than all compute. Both hold for every pipeline of so many ranks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress

from planner.bounds.rank_programme import RankProgramme
from planner.bounds.rank_states import states_of
from planner.bounds.unlike_deadline import cannot_finish, pipeline_lengths
from planner.costs.context import PlanningContext
from planner.costs.unlike_layers import UnlikeStages
from planner.space.shape import Shape
from sim.errors import NoRoute
from sim.plan import schedules
from sim.units import Seconds

MOST_CLASSES = 5
"""Largest number of classes: each further one doubles the sets of classes behind a rank."""
MOST_COUNTS = 200
"""Most orders and numbers of ranks of the classes whose links are looked at (a guess). More: slower."""
MOST_CONTENTS = 12
"""Most contents of a rank of so many layers that are told apart. Models with more have none of these bounds (a guess)."""


def bounds_by_length(
    context: PlanningContext, shape: Shape, classes: Sequence[UnlikeStages], cutoff: Seconds
) -> dict[int, Seconds]:
    """Number of ranks -> a lower bound in seconds, at most `cutoff`, on all pipelines of the shape; lengths without
    a bound are left out.

    With virtual stages there is none for schedules that split the backward, or wait for their sends."""
    if len(classes) > MOST_CLASSES or (programme := rank_programme(context, shape, classes, cutoff)) is None:
        return {}
    every = pipeline_lengths(context.request, shape, classes)
    found = {pp: cutoff if cannot_finish(context.request, shape, classes, pp, cutoff) else 0.0 for pp in every}
    found |= {pp: _busiest_link(context, shape, classes, pp) for pp, seconds in found.items() if seconds < cutoff}
    found |= {pp: max(seconds, programme.least(pp)) for pp, seconds in found.items() if seconds < cutoff}
    return {pp: min(seconds, cutoff) for pp, seconds in found.items()}


def rank_programme(
    context: PlanningContext, shape: Shape, classes: Sequence[UnlikeStages], cutoff: Seconds
) -> RankProgramme | None:
    """The programmes over the ranks of a shape, where there are some."""
    schedule, layers = schedules.get(shape.schedule), classes[0].layers
    if layers.further > 1 or (shape.vpp > 1 and (schedule.SPLITS_BACKWARD or not schedule.OVERLAPS_SENDS)):
        return None
    states = states_of(layers, shape.vpp)
    return RankProgramme(context, shape, classes, states, cutoff) if max(map(len, states.kinds)) <= MOST_CONTENTS else None


def _busiest_link(context: PlanningContext, shape: Shape, classes: Sequence[UnlikeStages], pp: int) -> Seconds:
    """The least seconds for which the busiest link of a pipeline of so many ranks carries its messages, over all orders and
    numbers of ranks of the classes; 0 where these are many."""
    m, least, tried = shape.least_microbatches(context.request.workload), math.inf, 0
    for many in range(1, min(len(classes), pp) + 1):
        for order in itertools.permutations(classes, many):
            with suppress(NoRoute):
                nic = context.fleets.nic_of(tuple(option.cluster for option in order))
                for counts in shares(pp, [option.max_stages for option in order]):
                    tried += 1
                    if tried > MOST_COUNTS:
                        return 0.0
                    runs = tuple((option.cluster, 0, count) for option, count in zip(order, counts, strict=True))
                    load = context.loads.load(runs, shape, nic, context.fleets.open, whole=True)
                    least = min(least, m * load)
    return least


def shares(total: int, most: Sequence[int], least: int = 1) -> Iterator[tuple[int, ...]]:
    """All ways to divide a total into parts of `least` or more, and at most `most` of each."""
    if len(most) == 1:
        if least <= total <= most[0]:
            yield (total,)
        return
    for count in range(least, min(most[0], total - least * (len(most) - 1)) + 1):
        yield from ((count, *rest) for rest in shares(total - count, most[1:], least))
