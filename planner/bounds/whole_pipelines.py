"""Lower bounds on the steps of many given pipelines at once, in closed form.

The inequalities of `planner.bounds.deadline_test` for pipelines whose stages are all known. There, the layers before a stage
count with the least seconds on any class; here, with those of their own stages. So these bounds rule out most of the pipelines
that the deadline test leaves, far quicker than the evaluator finds their steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.bounds.listing import Layers
from planner.bounds.ordered_stages import OrderedStages, Sends
from sim.analytic.candidates import Floats


def least_steps(stages: OrderedStages, classes: Sequence[int], layers: Layers) -> Floats:
    """A lower bound in seconds on the step of each pipeline, shape (pipelines,).

    classes: the class of each stage, an index in the order of `stages`; layers: shape (pipelines, stages)."""
    pp, vpp = len(classes), stages.shape.vpp
    between = [0.0, *stages.hops(classes), 0.0]
    begin, own, both, busy, lane, weight, tail, ahead, back, trip, fill, drain = np.array(
        [_seconds(stages, stage, classes, layers[:, stage], (between[stage + 1], between[stage])) for stage in range(pp)]
    ).transpose(1, 0, 2)
    hops = np.array(between[1:-1])[:, None]
    filled, drained = (_before(one[:-1] + hops) for one in (fill, drain))
    begun = np.maximum(filled, begin)
    sends = np.array(between[:-1])[:, None] * stages.waits
    deferred = np.array([stages.deferred(stage, pp) if stages.splits else 0 for stage in range(pp)])[:, None]
    work = np.maximum(busy - deferred * weight - sends, lane)
    steps = np.maximum(np.maximum(begun + own, both).max(axis=0), (begun + work + drained)[1:].max(axis=0) + tail[0])
    once = trip.sum(axis=0) + 2 * (vpp * hops.sum() + (vpp - 1) * stages.wrap)  # a microbatch there and back
    for stage in range(pp):
        before = filled[stage] + drained[stage]
        longest = once - before
        forward, _, backward = stages.rates[classes[stage]]
        for count, forwards, backwards, weights, *more in stages.round_trips(stage, pp):
            rest = forwards * ahead[stage] + backwards * back[stage] + weights * weight[stage]
            rest += (more[0] * forward + more[1] * backward) * (layers[:, stage] // vpp)
            steps = np.maximum(steps, once + count * longest + rest + tail[0])
    return np.asarray(steps, dtype=np.float64)


def _seconds(stages: OrderedStages, stage: int, classes: Sequence[int], layers: Layers, sends: Sends) -> Floats:
    """Seconds of a stage in each pipeline, one row for each kind. The last two rows: forward and gradients of inputs of the
    first virtual stage, which fill and drain pass."""
    i, role = classes[stage], "first" if not stage else "last" if stage == len(classes) - 1 else "middle"
    (ahead, back), vpp, pp = sends, stages.vpp, len(classes)
    begin, own, both, *rest, to_next, inputs, trip = stages.sizes(i, role, pp - 1 - stage, pp, sends).rows(layers).T
    passes = to_next - ahead * stages.waits, inputs - back * stages.waits
    if vpp > 1:
        forward, _, backward = stages.rates[i]
        passes = forward * (layers // vpp), backward * (layers // vpp)
    return np.array((begin, own, both, *rest, to_next, inputs, trip, *passes))


def _before(seconds: Floats) -> Floats:
    """Of each stage, the sum over the stages before it."""
    sums: Floats = np.vstack([np.zeros((1, seconds.shape[1])), np.cumsum(seconds, axis=0)])
    return sums
