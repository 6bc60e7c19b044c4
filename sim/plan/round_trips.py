"""Round trips of microbatches: how long a pipeline rank waits for gradients before its schedule lets it go on.

A rank of a schedule begins forward j + w only after backward j, for a fixed w (in 1F1B, the number of ranks from this one to
the last). Between the two, microbatch j travels to the last stage and back. So a rank whose round trip takes L seconds begins
no more than w forwards in L seconds, however fast its stage is: the law of J. D. C. Little (A Proof for the Queuing Formula,
Operations Research 9(3), 1961) with w microbatches in the system."""

from __future__ import annotations

import functools
import math
from itertools import pairwise
from typing import NamedTuple

from sim.plan import schedules
from sim.plan.parallel_config import ParallelConfig
from sim.plan.program import Program


class RoundTrips(NamedTuple):
    """Steps that follow one another on a rank, from its first forward to its last forward, both of its first virtual stage.

    First `trips` round trips of a microbatch: forward of this stage, the stages behind and back, and the backward of this
    stage. Then `forwards`, `backwards` and `weights` (W) of this rank, each for all its virtual stages, and `more_forwards` and
    `more_backwards`, each for one of them. Of a backward that is split, `backwards` are its gradients of inputs (B)."""

    trips: int
    forwards: int
    backwards: int
    weights: int
    more_forwards: int = 0
    more_backwards: int = 0


@functools.lru_cache(maxsize=1 << 16)
def round_trips(name: str, rank: int, ranks: int, microbatches: int, chunks: int = 1) -> tuple[RoundTrips, ...]:
    """Sequences of steps on a pipeline rank; the seconds of each are a lower bound from its first to its last forward.

    Without, with one, and with as many round trips as possible. Where the warm-up of the schedule is bounded (`WARM_UP` of
    `sim.plan.schedules`), they come from a program of few microbatches that repeats in the same way. Raises NotDefined as
    `schedules.actions`."""
    if not schedules.has_bounded_warm_up(name):
        return of_program(schedules.actions(name, rank, ranks, microbatches, chunks), rank, ranks, chunks)
    some = min(microbatches, 4 * chunks * ranks)
    window = _window(schedules.actions(name, rank, ranks, some, chunks), rank)
    repeated = math.lcm(window, ranks) if chunks > 1 or schedules.whole_rounds(name) else window
    cut = max(0, (microbatches - max(some, 2 * window + 1)) // repeated) * repeated
    few = of_program(schedules.actions(name, rank, ranks, microbatches - cut, chunks), rank, ranks, chunks)
    if not cut:
        return few
    least, most = few[:-1], few[-1]
    split = cut if schedules.get(name).SPLITS_BACKWARD else 0
    longer = (RoundTrips(one.trips, one[1] + cut, one[2] + cut, one.weights + split, *one[4:]) for one in least)
    return *longer, most._replace(trips=most.trips + cut // window)


@functools.lru_cache(maxsize=1 << 16)
def first_return(name: str, rank: int, ranks: int, microbatches: int, chunks: int = 1) -> RoundTrips:
    """Steps that follow one another on a pipeline rank, from the first forward of its first virtual stage to its last action:
    one round trip of a microbatch, and all that its program has after the first backward of that stage.

    Raises NotDefined as `schedules.actions`."""
    cut = 0
    if schedules.has_bounded_warm_up(name):
        some = min(microbatches, 4 * chunks * ranks)
        repeated = ranks if chunks > 1 or schedules.whole_rounds(name) else 1
        cut = max(0, (microbatches - some) // repeated) * repeated
    after = _after_return(schedules.actions(name, rank, ranks, microbatches - cut, chunks), rank, ranks, chunks)
    split = cut if schedules.get(name).SPLITS_BACKWARD else 0
    return RoundTrips(after.trips, after.forwards + cut, after.backwards + cut, after.weights + split, *after[4:])


def _after_return(program: Program, rank: int, ranks: int, chunks: int) -> RoundTrips:
    """`first_return` by all actions of a program."""
    returned = next(place for place, action in enumerate(program) if (action.kind, action.stage) == ("B", rank))
    return _counted(1, program[returned + 1 :], rank, ranks, chunks)


def of_program(program: Program, rank: int, ranks: int, chunks: int) -> tuple[RoundTrips, ...]:
    """The sequences of `round_trips` by all actions of a program."""
    forwards = [place for place, action in enumerate(program) if (action.kind, action.stage) == ("F", rank)]
    last, window = len(forwards) - 1, _window(program, rank)
    found = []
    for trips in sorted({0, min(1, last // window), last // window}):
        found.append(_counted(trips, program[forwards[trips * window] : forwards[last]], rank, ranks, chunks))
    return tuple(found)


def _counted(trips: int, actions: Program, rank: int, ranks: int, chunks: int) -> RoundTrips:
    """So many round trips, and some actions of a rank."""
    counts = {(kind, chunk): 0 for kind in "FBW" for chunk in range(chunks)}
    for action in actions:
        counts[action.kind, (action.stage - rank) // ranks] += 1
    by_kind = [[counts[kind, chunk] for chunk in range(chunks)] for kind in "FBW"]
    more = (sum(of_chunks) - chunks * min(of_chunks) for of_chunks in by_kind[:2])
    return RoundTrips(trips, *map(min, by_kind), *more)


def holds_receivers(config: ParallelConfig) -> bool:
    """Whether a rank computes nothing for as long as a message to it travels, even where the message left before the rank asked
    for it (`held_receivers`). Schedules whose messages overlap compute have no such waits (`schedules.OVERLAPS_SENDS`)."""
    return config.held_receivers and not schedules.get(config.schedule).OVERLAPS_SENDS


@functools.lru_cache(maxsize=1 << 16)
def held_forwards(name: str, rank: int, ranks: int, microbatches: int) -> int:
    """Forwards of a pipeline rank for which it waits for two messages, one after the other: the gradient of its backward just
    before to the previous rank, and back from there the activations of the forward, which that rank holds until it has received
    this gradient (RECEIVES_FIRST of `sim.plan.schedules`, `sim.kernels.pass_messages`). 0 where a rank may do other work."""
    schedule = schedules.get(name)
    if not rank or schedule.CHUNKED or schedule.SPLITS_BACKWARD or not schedule.RECEIVES_FIRST:
        return 0
    own, before = (schedules.actions(name, one, ranks, microbatches, 1) for one in (rank, rank - 1))
    held = {
        (backward.microbatch, forward.microbatch)
        for forward, backward in pairwise(before)
        if (forward.kind, backward.kind) == ("F", "B") and forward.microbatch - backward.microbatch == ranks - rank
    }
    return sum(
        (backward.kind, forward.kind) == ("B", "F") and (backward.microbatch, forward.microbatch) in held
        for backward, forward in pairwise(own)
    )


def _window(program: Program, rank: int) -> int:
    """The least w so that backward j precedes forward j + w, for all j, on the first virtual stage of a rank."""
    window, begun, ended = 1, 0, 0
    for action in program:
        if action.stage == rank:
            begun, ended = begun + (action.kind == "F"), ended + (action.kind == "B")
            window = max(window, begun - ended)
    return window
