"""All splits of layers that differ over pipelines of a few ranks: each is priced, and built if it may be fast.

A bound on all pipelines of a length (`planner.bounds.unlike_lengths`) leaves open which of them might be as fast as it says.
Where there are few, they are listed. Those whose closed form is below the fastest plan are built and simulated, and then none
of that length takes less than the fastest of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

from planner.bounds.unlike_lengths import shares
from planner.bounds.unlike_stages import Pipeline
from planner.costs.context import PlanningContext
from planner.costs.unlike_layers import UnlikeStages
from planner.search.unlike_splits import TOO_FULL, Split
from planner.space.shape import Shape
from sim.units import Seconds

MOST = 400
"""Most pipelines of one length that are listed (a guess): more take longer than the proof is worth."""


def exhausted(
    context: PlanningContext,
    shape: Shape,
    classes: Sequence[UnlikeStages],
    pp: int,
    cutoff: Seconds,
    tried: Callable[[Pipeline], Seconds | None],
) -> Seconds | None:
    """A lower bound in seconds on all pipelines of pp ranks of a shape; None where they are many.

    tried: a lower bound on the plans of a pipeline, after it was built; None where nothing more is built."""
    layers, least = classes[0].layers, math.inf
    total = layers.number + layers.further
    orders = list(_orders(classes, pp))
    splits = math.comb(total - pp * shape.vpp + pp - 1, pp - 1)
    if splits * len(orders) > MOST:
        return None
    for options in orders:
        search = Split(context, shape, options)
        for counts in shares(total, [total] * pp, shape.vpp):
            seconds, _ = search.seconds(counts)
            own = (*counts[:-1], counts[-1] - layers.further)
            if seconds >= TOO_FULL or own[-1] < 0:
                continue
            if seconds < cutoff:
                built = tried(tuple(zip((one.cluster.name for one in options), own, strict=True)))
                if built is None:
                    return None
                seconds = max(seconds, built)
            least = min(least, seconds)
    return least


def _orders(classes: Sequence[UnlikeStages], pp: int) -> Iterator[tuple[UnlikeStages, ...]]:
    """The class of each rank, of all pipelines of so many ranks; those of a class are consecutive."""
    for many in range(1, min(len(classes), pp) + 1):
        for order in itertools.permutations(classes, many):
            for counts in shares(pp, [option.max_stages for option in order]):
                yield tuple(option for option, count in zip(order, counts, strict=True) for _ in range(count))
