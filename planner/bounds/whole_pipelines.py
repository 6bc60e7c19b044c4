"""Lower bounds on the steps of many given pipelines at once, in closed form.

The inequalities of `planner.bounds.deadline_test` for pipelines whose stages are all known. There, the layers before a stage
count with the least seconds on any class; here, with those of their own stages. So these bounds rule out most of the pipelines
that the deadline test leaves, far quicker than the evaluator finds their steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.bounds.listing import Layers
from planner.bounds.ordered_stages import OrderedStages
from planner.bounds.stage_messages import Sends
from sim.analytic.candidates import Floats
from sim.plan.round_trips import RoundTrips


def least_steps(stages: OrderedStages, classes: Sequence[int], layers: Layers) -> Floats:
    """A lower bound in seconds on the step of each pipeline, shape (pipelines,).

    classes: the class of each stage, an index in the order of `stages`; layers: shape (pipelines, stages)."""
    pp, vpp = len(classes), stages.shape.vpp
    between = [0.0, *stages.hops(classes), 0.0]
    begin, own, both, busy, lane, weight, tail, ahead, back, trip, fill, drain = np.array(
        [
            _seconds(stages, stage, classes, layers[:, stage], stages.sending(between[stage + 1], between[stage], stage, pp))
            for stage in range(pp)
        ]
    ).transpose(1, 0, 2)
    hops = np.array(between[1:-1])[:, None]
    filled, drained = (_before(one[:-1] + hops) for one in (fill, drain))
    begun = _begun(begin, fill, hops)
    held, more = _held(stages, classes, between, (fill + drain, drain))
    own, busy = np.maximum(own, busy + more + tail), busy + more
    both = np.maximum(both, np.maximum(begin, 0.0) + own)
    sends = np.array(between[:-1])[:, None] * stages.waits
    deferred = np.array([stages.deferred(stage, pp) if stages.splits else 0 for stage in range(pp)])[:, None]
    work = np.maximum(busy - deferred * weight - sends, lane)
    rest_of_step = drained + tail[0] if vpp > 1 else _ended(tail + sends * (not stages.splits), drain, hops)
    steps = np.maximum(np.maximum(begun + own, both).max(axis=0), (begun + work + rest_of_step)[1:].max(axis=0))
    once = trip.sum(axis=0) + 2 * (vpp * hops.sum() + (vpp - 1) * stages.wrap)  # a microbatch there and back
    turned = _turned(begun[-1] + fill[-1], drain, hops) if vpp == 1 else None
    for stage in range(pp):
        longest = once - filled[stage] - drained[stage]
        returned = begun[stage] + longest if turned is None else turned[stage]
        forward, _, backward = stages.rates[classes[stage]]
        chunk: Floats = (layers[:, stage] // vpp).astype(np.float64)
        each: list[Floats] = [
            ahead[stage],
            back[stage],
            weight[stage],
            np.multiply(chunk, forward),
            np.multiply(chunk, backward),
        ]
        for one in stages.round_trips(stage, pp):
            start = returned + (one.trips - 1) * longest if one.trips else begun[stage]
            waits = held[stage] * (one.trips <= 1)
            steps = np.maximum(steps, start + _steps(one, each) + waits + longest + rest_of_step[stage])
        if (after := stages.first_return(stage, pp)) is not None:
            steps = np.maximum(steps, returned + _steps(after, each) + tail[stage])
    return np.asarray(steps, dtype=np.float64)


def _steps(one: RoundTrips, each: Sequence[Floats]) -> Floats:
    """Seconds of the steps of a rank beside its round trips; each: of one step of each kind."""
    total: Floats = np.sum([number * seconds for number, seconds in zip(one[1:], each, strict=True)], axis=0)
    return total


def _seconds(stages: OrderedStages, stage: int, classes: Sequence[int], layers: Layers, sends: Sends) -> Floats:
    """Seconds of a stage in each pipeline, one row for each kind. The last two rows: forward and gradients of inputs of the
    first virtual stage, which fill and drain pass."""
    i, role = classes[stage], "first" if not stage else "last" if stage == len(classes) - 1 else "middle"
    (ahead, back, _), vpp, pp = sends, stages.vpp, len(classes)
    begin, own, both, *rest, to_next, inputs, trip = stages.sizes(i, role, pp - 1 - stage, pp, sends).rows(layers).T
    passes = to_next - ahead * stages.waits, inputs - back * stages.waits
    if vpp > 1:
        forward, _, backward = stages.rates[i]
        passes = forward * (layers // vpp), backward * (layers // vpp)
    return np.array((begin, own, both, *rest, to_next, inputs, trip, *passes))


def _begun(begin: Floats, fill: Floats, hops: Floats) -> Floats:
    """Least seconds until the first forward of each stage begins, by its own gathers and those of the stages before."""
    found = [np.maximum(begin[0], 0.0)]
    for stage in range(1, len(begin)):
        found.append(np.maximum(begin[stage], found[-1] + fill[stage - 1] + hops[stage - 1]))
    return np.array(found)


def _turned(last: Floats, drain: Floats, hops: Floats) -> Floats:
    """Least seconds until the first gradients of inputs of each stage end; last: until the last stage's first forward ends."""
    found = [last + drain[-1]]
    for stage in reversed(range(len(drain) - 1)):
        found.append(found[-1] + hops[stage] + drain[stage])
    return np.array(found[::-1])


def _ended(tail: Floats, drain: Floats, hops: Floats) -> Floats:
    """Least seconds from the end of the last gradients of inputs of each stage to the end of the step, by the tails of this
    stage and of all before it."""
    found = [tail[0]]
    for stage in range(1, len(tail)):
        found.append(np.maximum(tail[stage], hops[stage - 1] + drain[stage - 1] + found[-1]))
    return np.array(found)


def _held(
    stages: OrderedStages, classes: Sequence[int], between: Sequence[float], seconds: tuple[Floats, Floats]
) -> tuple[Floats, Floats]:
    """Seconds for which each stage of each pipeline waits for held messages, all of a step, and those beyond the seconds of the
    messages themselves. seconds: of both passes and of the backward of each stage."""
    passes, backward = seconds
    (found, more), pp = np.zeros((2, *passes.shape)), len(classes)
    if stages.held.are_some:
        for stage, both in enumerate(stages.both(classes)):
            held = stages.sending(between[stage + 1], between[stage], stage, pp).held
            if both:  # until: it differs from pipeline to pipeline
                waits = both - passes[stage] + np.minimum(backward[stage], passes[stage + 1] + between[stage + 2] - held.back)
                more[stage] = held.number * np.maximum(waits - held.message, 0.0)
            found[stage] = held.number * held.message + more[stage]
    return found, more


def _before(seconds: Floats) -> Floats:
    """Of each stage, the sum over the stages before it."""
    sums: Floats = np.vstack([np.zeros((1, seconds.shape[1])), np.cumsum(seconds, axis=0)])
    return sums
