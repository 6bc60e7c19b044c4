"""Step time of thousands of candidate pipelines at once: a max-plus recurrence on an idle network.

The tasks of `sim.analytic.pass_order`, which the engine simulates as events, are here evaluated in the max-plus algebra
(Baccelli, Cohen, Olsder, Quadrat, Synchronization and Linearity, 1992): a task starts when its pipeline rank is free and its
message has arrived; a message leaves when it is produced and its lane is free. Every quantity is an array over candidates, so
one traversal evaluates all of them.

    end(task)    = max(end(previous task), arrival(message)) + gather of its slices + seconds of the task
    arrival      = max(end(task), end(lane)) + wire     ; if the schedule does not overlap sends, the rank waits too

With n buckets of weights gathered ahead of a forward of f seconds, each in g, the forward ends at the maximum over k = 1 .. n
of k g + (n - k + 1) f / n; only the first and the last term can be the maximum. Reductions after the parts of a backward
likewise. Where the interference of a link slows compute, buckets are evaluated one by one.

The passes of a pair (`sim.kernels.paired_passes`) run one after the other, and their exchanges of tokens beside them, from the
begin of its forward on; its last task ends when both have ended.

ZeRO 2 reduces in this way in every backward, and the reductions of one microbatch slow the next. A task of ZeRO 3 starts
with a gather that waits until its pipeline rank and its stream are free; from then on the duration of the task does not depend
on what ran before, so it is one number (`sim.kernels.shards`).

Steady state: if all clocks of a candidate grow by the same number over one block of a loop of equal blocks, they grow by that
number over every further block. Invariant: the recurrence is monotone, and adding a number to all clocks adds it to the next
ones. So the largest difference between two states never grows, and the error of an extrapolation is at most `SETTLED` of a
block for every block skipped. A stream for which no task waits may grow faster than the rest if it is never idle (`_settled`).

Exact if replicas and the ranks of a tensor-parallel group are equal and no flow shares a link with another one, except those
that `sim.analytic.plan_costs` counts as simultaneous. Where other flows share links, the step is not longer than the engine's.
Flows of unequal replicas that count as simultaneous drift apart in the engine, and each replica waits for the gradients of the
others: the error can then have either sign.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sim.analytic.candidates import PIPELINE_RANK, STAGE, Candidates, Floats
from sim.analytic.clock_advance import Recurrence
from sim.analytic.clocks import Clocks, Name, joined
from sim.analytic.pass_loops import Loop, Task
from sim.analytic.pass_order import ordered_tasks
from sim.analytic.work_left import LoopWork
from sim.units import Seconds

SETTLED = 1e-12
"""Relative difference below which increments of clocks count as equal: a few thousand times the rounding of a float. A larger
one extrapolates sooner, with a larger error."""
ROWS = 4096
"""Candidates evaluated at once, so that their arrays stay in the cache; more use more memory bandwidth."""


def steps(candidates: Candidates) -> Floats:
    """Step time in seconds of every candidate, shape (candidates,)."""
    return steps_and_reductions(candidates)[0]


def steps_and_reductions(candidates: Candidates, limit: Seconds = math.inf) -> tuple[Floats, Floats]:
    """Step time in seconds of every candidate, shape (candidates,), and for each pipeline rank the time before which none of
    its gradients of the last microbatch is reduced, shape (pipeline ranks, candidates).

    A step that is proved to be above `limit` may be a lower bound above it instead, with reductions at 0."""
    found = [_whole(candidates.some(slice(first, first + ROWS)), limit) for first in range(0, len(candidates), ROWS)]
    ends, reductions = zip(*found, strict=True) if found else ([np.zeros(0)], [np.zeros((candidates.pp, 0))])
    return np.concatenate(ends), np.concatenate(reductions, axis=1)


def _whole(candidates: Candidates, limit: Seconds) -> tuple[Floats, Floats]:
    state, recurrence, rows = _begin(candidates), Recurrence(candidates), np.arange(len(candidates))
    ends, reductions = np.zeros(len(candidates)), np.zeros((candidates.pp, len(candidates)))
    loops = ordered_tasks(candidates.schedule, candidates.pp, candidates.microbatches, candidates.vpp)
    left = recurrence.work_left(loops, limit) if limit < math.inf else None
    for number, loop in enumerate(loops):
        kept, state, least = _repeat(recurrence, state, loop, left.of(number) if left is not None else None)
        if len(kept) < len(rows):
            ends[rows] = least
            rows, recurrence = rows[kept], recurrence.some(kept)
            left = left.some(kept) if left is not None else None
        if not len(rows):
            return ends, reductions
    ends[rows], reductions[:, rows] = _end(recurrence.candidates, state), np.array(state.reductions)
    return ends, reductions


def _begin(candidates: Candidates) -> Clocks:
    """Initial state: nothing is computed; each pipeline rank gathers the weights of its stages one after the other."""
    gather, slows = candidates.stages[STAGE.index("gather")], candidates.pp_ranks[PIPELINE_RANK.index("gather_slows")]
    nothing = np.zeros(len(candidates))
    gathered = list(gather[candidates.by_rank].sum(axis=0))
    slowed = ["F" if until.any() and share.any() else "" for until, share in zip(gathered, slows, strict=True)]
    return Clocks([nothing] * candidates.pp, gathered, slowed, [nothing] * candidates.pp)


def _end(candidates: Candidates, state: Clocks) -> Floats:
    """Step time after the last tasks: reductions, all-reduce of a tied embedding (first stage and head), optimizer."""
    of_rank = dict(zip(PIPELINE_RANK, candidates.pp_ranks, strict=True))
    ready = [np.maximum(*both) for both in zip(state.pp_ranks, state.streams, strict=True)]
    ready = [end + reduced for end, reduced in zip(ready, of_rank["reduced"], strict=True)]
    head = candidates.head
    tied = np.maximum(ready[0], ready[head]) + candidates.tied
    ready[0], ready[head] = np.maximum(ready[0], tied), np.maximum(ready[head], tied)
    ends: Floats = np.array(ready) + of_rank["updated"]
    return np.asarray(ends.max(axis=0), dtype=np.float64)


def _repeat(
    recurrence: Recurrence, state: Clocks, loop: Loop, work_left: LoopWork | None
) -> tuple[NDArray[np.int64], Clocks, Floats]:
    """The clocks after a loop: block by block until the increments of a candidate are constant, then by extrapolation.

    Returns the indices of the candidates that are not proved to end above a limit, their clocks, and lower bounds of others."""
    rows, left, least = np.arange(len(recurrence.candidates)), len(loop.blocks), np.zeros(len(recurrence.candidates))
    with_streams = recurrence.candidates.reduces_each_microbatch
    done: list[tuple[NDArray[np.int64], Clocks]] = []
    for block in loop.blocks:
        before = state.copy()
        recurrence.advance(state, block)
        left -= 1
        if work_left is not None:
            above, bounds = work_left.above(state.pp_ranks)
            if above.any():
                least[rows[above]] = bounds[above]
                rows, state, before = rows[~above], state.some(~above), before.some(~above)
                if not len(rows):
                    break
                recurrence = recurrence.some(np.flatnonzero(~above))
                work_left.keep(~above)
        changing = "F" in state.slowed or (any(state.slowed) and not with_streams)
        growth = state.growth(before, loop.later, with_streams) if left and not changing else {}
        if not growth:
            continue
        settled = _settled(recurrence, state, growth, block)
        if settled.any():
            done.append((rows[settled], state.extrapolated(growth, left, loop.later).some(settled)))
            rows, state = rows[~settled], state.some(~settled)
            if not len(rows):
                break
            recurrence = recurrence.some(np.flatnonzero(~settled))
            if work_left is not None:
                work_left.keep(~settled)
    else:
        done.append((rows, state))
    if len(done) < 2:
        return *(done[0] if done else (rows, state)), least
    return np.sort(np.concatenate([indices for indices, _ in done])), joined(done), least


def _settled(recurrence: Recurrence, state: Clocks, growth: dict[Name, Floats], block: Sequence[Task]) -> NDArray[np.bool_]:
    """Which candidates are in steady state: all their clocks have grown by one number over the last block.

    A stream of reductions for which no task waits may also fall behind further and further: if it has been busy since the block
    began and still is, it stays busy, and slows all compute that it overlaps.
    """
    streams = {pp_rank: growth.pop(name) for pp_rank in range(len(state.pp_ranks)) if (name := ("stream", pp_rank)) in growth}
    least, most = np.min(list(growth.values()), axis=0), np.max(list(growth.values()), axis=0)
    settled: NDArray[np.bool_] = most - least <= SETTLED * most
    for pp_rank, added in streams.items():
        growth["stream", pp_rank] = added
        alike = abs(added - most) <= SETTLED * most
        if not recurrence.shards[pp_rank] and not alike.all():
            reduced = sum(
                recurrence.reduce[task.stage] for task in block if task.pp_rank == pp_rank and task.kind == recurrence.closing
            )
            is_busy = state.streams[pp_rank] > state.pp_ranks[pp_rank]
            alike |= is_busy & (added > most) & (abs(added - reduced) <= SETTLED * added)
        settled &= alike
    return settled
