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

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sim.analytic.buckets import buckets, part_by_part, tails
from sim.analytic.candidates import PIPELINE_RANK, STAGE, Candidates, Floats
from sim.analytic.clocks import Clocks, Name, joined
from sim.analytic.pass_order import Loop, Task, ordered_tasks
from sim.plan import schedules

SETTLED = 1e-12
"""Relative difference below which increments of clocks count as equal: a few thousand times the rounding of a float. A larger
one extrapolates sooner, with a larger error."""
ROWS = 4096
"""Candidates evaluated at once, so that their arrays stay in the cache; more use more memory bandwidth."""


def steps(candidates: Candidates) -> Floats:
    """Step time in seconds of every candidate, shape (candidates,)."""
    return steps_and_reductions(candidates)[0]


def steps_and_reductions(candidates: Candidates) -> tuple[Floats, Floats]:
    """Step time in seconds of every candidate, shape (candidates,), and for each pipeline rank the time before which none of
    its gradients of the last microbatch is reduced, shape (pipeline ranks, candidates)."""
    found = [_whole(candidates.some(slice(first, first + ROWS))) for first in range(0, len(candidates), ROWS)]
    ends, reductions = zip(*found, strict=True) if found else ([np.zeros(0)], [np.zeros((candidates.pp, 0))])
    return np.concatenate(ends), np.concatenate(reductions, axis=1)


def _whole(candidates: Candidates) -> tuple[Floats, Floats]:
    state, recurrence = _begin(candidates), _Recurrence(candidates)
    for loop in ordered_tasks(candidates.schedule, candidates.pp, candidates.microbatches, candidates.vpp):
        state = _repeat(recurrence, state, loop)
    return _end(candidates, state), np.array(state.reductions)


class _Recurrence:
    """Advances the clocks of candidates task by task; holds their seconds by kind of task and stage."""

    def __init__(self, candidates: Candidates):
        self.candidates = candidates
        stage: dict[str, Floats] = dict(zip(STAGE, candidates.stages, strict=True))
        of_rank: dict[str, Floats] = dict(zip(PIPELINE_RANK, candidates.pp_ranks, strict=True))
        self.waits = not schedules.get(candidates.schedule).OVERLAPS_SENDS
        self.seconds: dict[str, list[Floats]] = {
            "F": list(stage["forward"]),
            "B": list(stage["inputs"]),
            "W": list(stage["weight"]),
        }
        self.compute = {"F": stage["forward_compute"], "B": stage["inputs_compute"], "W": stage["weight"]}
        self.received = {
            kind: [row if row.any() else None for row in stage[name]]
            for kind, name in (("F", "forward_received"), ("B", "inputs_received"))
        }
        self.wire = {"F": list(stage["ahead"]), "B": list(stage["back"])}
        if self.waits:
            pairs = {kind: zip(self.seconds[kind], self.wire[kind], strict=True) for kind in "FB"}
            self.sent = {kind: [a + b for a, b in pairs[kind]] for kind in "FB"}
        self.parts, self.gather, self.reduce, self.stream = (stage[name] for name in ("parts", "gather", "reduce", "stream"))
        self.gathered = of_rank["gathered"]
        self.slows = {"F": of_rank["gather_slows"], "B": of_rank["reduce_slows"]}
        self.slowing = {kind: [bool(share.any()) for share in shares] for kind, shares in self.slows.items()}
        self.before = [np.zeros(len(candidates))] * len(self.gather)
        for index in range(candidates.pp, len(self.gather)):
            self.before[index] = self.before[index - candidates.pp] + self.gather[index - candidates.pp]
        self.closing = "W" if schedules.get(candidates.schedule).SPLITS_BACKWARD else "B"
        self.reduces = [bool(row.any()) for row in self.reduce]
        self.behind = tails(self.parts, self.seconds[self.closing], self.reduce)
        self.freed: tuple[Floats, Floats] | None = None
        zero = [candidates.zero_of(pp_rank) for pp_rank in range(candidates.pp)]
        self.shards = [stage == 3 for stage in zero]
        self.always = [self.closing * (stage >= 2) + "FB" * (stage == 3) for stage in zero]

    def some(self, rows: NDArray[np.int64]) -> _Recurrence:
        """The recurrence of the candidates of the given indices."""
        selected = _Recurrence(self.candidates.some(rows))
        if self.freed is not None:
            selected.freed = self.freed[0][:, rows], self.freed[1][:, rows]
        return selected

    def advance(self, state: Clocks, tasks: Sequence[Task]) -> None:
        """Advance a state in place over some tasks."""
        clocks, live, slowed, always, waits = state.pp_ranks, state.live, state.slowed, self.always, self.waits
        for pp_rank, kind, stage, _, receives, held, sends, lane, cut in tasks:
            now = clocks[pp_rank]
            fresh = None  # an array without other references, so that one can add in place
            if receives is not None:
                now = fresh = np.maximum(now, live.pop(receives))
                gathered = self.received[kind][stage]
                if gathered is not None:
                    now += gathered
            if held is not None:
                now, fresh = now + self.wire["F"][stage], None
                live[held] = now
            if cut or slowed[pp_rank] or kind in always[pp_rank]:
                now = self._overlapped(state, pp_rank, kind, stage, now, cut)
            elif waits and sends is not None:
                clocks[pp_rank] = live[sends] = np.add(now, self.sent[kind][stage], out=fresh)
                continue
            else:
                now = np.add(now, self.seconds[kind][stage], out=fresh)
            if sends is not None:
                wire = self.wire[kind][stage]
                if waits:
                    now = live[sends] = now + wire
                else:
                    ready = np.maximum(now, state.lanes[lane]) if lane in state.lanes else now
                    live[sends] = state.lanes[lane] = ready + wire
            clocks[pp_rank] = now

    def _overlapped(self, state: Clocks, pp_rank: int, kind: str, stage: int, now: Floats, cut: bool) -> Floats:
        """The end of a task that gradient collectives may overlap."""
        if kind != "W" and self.shards[pp_rank]:
            return self._sharded(state, pp_rank, kind, stage, now)
        if kind == self.closing and (cut or kind in self.always[pp_rank]) and self.reduces[stage]:
            return self._before_reductions(state, pp_rank, kind, stage, now)
        if kind == "F" and cut and self.gather[stage].any():
            return self._behind_gathers(state, pp_rank, kind, stage, now)
        return self._slowed(state, pp_rank, now, self.compute[kind][stage], self.seconds[kind][stage])

    def _sharded(self, state: Clocks, pp_rank: int, kind: str, stage: int, now: Floats) -> Floats:
        """The end of a ZeRO 3 task: it gathers weights layer by layer, and its first gather waits for rank and stream."""
        begun: Floats = np.maximum(now, state.streams[pp_rank])
        state.slowed[pp_rank] = ""
        if kind == "B":
            state.streams[pp_rank] = begun + self.stream[stage]
        ended: Floats = begun + self.seconds[kind][stage]
        return ended

    def _slowed(self, state: Clocks, pp_rank: int, now: Floats, compute: Floats, whole: Floats) -> Floats:
        """The end of `whole` seconds that start now, of which `compute` slow down while collectives of the pipeline rank run.

        If collectives run d more seconds at a slowdown of s, min(d s / (1 + s), s compute) seconds are lost.
        """
        if not state.slowed[pp_rank]:
            return now + whole
        share: Floats = self.slows[state.slowed[pp_rank]][pp_rank]
        lost = (state.streams[pp_rank] - now) * (share / (1.0 + share))
        if not (lost > 0.0).any():
            state.slowed[pp_rank] = ""
            return now + whole
        return now + whole + np.minimum(np.maximum(lost, 0.0), share * compute)

    def _behind_gathers(self, state: Clocks, pp_rank: int, kind: str, stage: int, now: Floats) -> Floats:
        """The end of a stage's first forward, each part of which waits for a bucket of weights."""
        n, whole, gather, begun = self.parts[stage], self.seconds[kind][stage], self.gather[stage], self.before[stage]
        least: Floats = np.maximum(begun + gather, self.gathered[pp_rank]) + whole / n
        if not state.slowed[pp_rank]:
            ended: Floats = np.maximum(np.maximum(now + whole, begun + gather / n + whole), least)
            return ended
        for compute, here, each in buckets(n, self.compute[kind][stage], whole, gather):
            begun = begun + each
            now = self._slowed(state, pp_rank, np.maximum(now, begun), compute, here)
        return np.maximum(now, least)

    def _before_reductions(self, state: Clocks, pp_rank: int, kind: str, stage: int, now: Floats) -> Floats:
        """The end of the last task of a microbatch, with a bucket of gradients reduced after each of its parts.

        It is a closed form if the stream is free at the start, or still busy at the end; else parts are evaluated one by one.
        """
        whole, reduce = self.seconds[kind][stage], self.reduce[stage]
        state.reductions[pp_rank] = now + whole / self.parts[stage]
        if not self.slowing["B"][pp_rank]:
            state.streams[pp_rank] = np.maximum(state.streams[pp_rank] + reduce, now + self.behind[stage])
            state.slowed[pp_rank] = ""
            return now + whole
        state.slowed[pp_rank] = "B"
        own = self.parts[stage], self.compute[kind][stage], whole, reduce, self.slows["B"][pp_rank]
        freed_end, freed_stream = (ends[stage] for ends in self._freed())
        late, slowest = state.streams[pp_rank] - now, whole + own[1] * own[-1]
        ended: Floats = now + np.where(late > 0.0, slowest, freed_end)
        stream = np.where(late > 0.0, state.streams[pp_rank] + reduce, now + freed_stream)
        between = np.flatnonzero((late > 0.0) & (late < slowest))
        if len(between):
            some = (one[between] for one in (now, state.streams[pp_rank], *own))
            ended[between], stream[between] = part_by_part(*some)
        state.streams[pp_rank] = stream
        return ended

    def _freed(self) -> tuple[Floats, Floats]:
        """Ends of a microbatch's last task and of its stream, from the task's start, if the stream is free then, shape (stages,
        candidates); cached, and computed for all stages at once, because many batches have few candidates."""
        if self.freed is None:
            shares = np.tile(self.slows["B"], (len(self.parts) // self.candidates.pp, 1))
            own = self.parts, np.array(self.compute[self.closing]), np.array(self.seconds[self.closing]), self.reduce
            nothing = np.zeros(self.parts.shape)
            self.freed = part_by_part(nothing, nothing, *own, shares)
        return self.freed


def _begin(candidates: Candidates) -> Clocks:
    """Initial state: nothing is computed; each pipeline rank gathers the weights of its stages one after the other."""
    gather, slows = candidates.stages[STAGE.index("gather")], candidates.pp_ranks[PIPELINE_RANK.index("gather_slows")]
    nothing = np.zeros(len(candidates))
    gathered = [gather[pp_rank :: candidates.pp].sum(axis=0) for pp_rank in range(candidates.pp)]
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


def _repeat(recurrence: _Recurrence, state: Clocks, loop: Loop) -> Clocks:
    """The clocks after a loop: block by block until the increments of a candidate are constant, then by extrapolation."""
    rows, left = np.arange(len(recurrence.candidates)), len(loop.blocks)
    with_streams = recurrence.candidates.reduces_each_microbatch
    done: list[tuple[NDArray[np.int64], Clocks]] = []
    for block in loop.blocks:
        before = state.copy()
        recurrence.advance(state, block)
        left -= 1
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
    else:
        done.append((rows, state))
    return done[0][1] if len(done) == 1 else joined(done)


def _settled(recurrence: _Recurrence, state: Clocks, growth: dict[Name, Floats], block: Sequence[Task]) -> NDArray[np.bool_]:
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
