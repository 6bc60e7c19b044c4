"""Advances the clocks of the max-plus recurrence (`sim.analytic.recurrence`) task by task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sim.analytic.buckets import buckets, part_by_part, tails
from sim.analytic.candidates import PIPELINE_RANK, STAGE, Candidates, Floats
from sim.analytic.clocks import Clocks
from sim.analytic.pass_loops import Key, Loop, Task
from sim.analytic.pass_order import ARRIVING, CLOSING, LEAVING, OPENING, PAIRED
from sim.analytic.work_left import WorkLeft
from sim.plan import schedules
from sim.units import Seconds

ARRIVES_FROM = {"F": -1, "B": 1}
"""Kind of a task -> the stage from which its message comes, counted from its own."""
BESIDE = "E"
"""What slows compute beside the exchanges of tokens of a pair (`Clocks.slowed`)."""


class Recurrence:
    """Advances the clocks of candidates task by task; holds their seconds by kind of task and stage."""

    def __init__(self, candidates: Candidates):
        self.candidates = candidates
        stage: dict[str, Floats] = dict(zip(STAGE, candidates.stages, strict=True))
        of_rank: dict[str, Floats] = dict(zip(PIPELINE_RANK, candidates.pp_ranks, strict=True))
        self.waits, self.holds = not schedules.get(candidates.schedule).OVERLAPS_SENDS, candidates.holds_receivers
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
        self.tokens = _add_pairs(self, stage) if schedules.is_paired(candidates.schedule) else []
        self.joint = [row if row.any() else None for row in stage["joint"]]
        self.leaving = {
            kind: [row + wire for row, wire in zip(stage[f"{name}_called"], self.wire[kind], strict=True)]
            for kind, name in (("F", "forward"), ("B", "inputs"))
        }
        if self.waits:
            pairs = {kind: zip(self.seconds[kind], self.leaving[kind], strict=True) for kind in "FB"}
            self.sent = {kind: [a + b for a, b in pairs[kind]] for kind in "FB"}
        self.parts, self.gather, self.reduce, self.stream = (stage[name] for name in ("parts", "gather", "reduce", "stream"))
        self.gathered = of_rank["gathered"]
        self.slows = {"F": of_rank["gather_slows"], "B": of_rank["reduce_slows"], BESIDE: of_rank["token_slows"]}
        self.slowing = {kind: [bool(share.any()) for share in shares] for kind, shares in self.slows.items()}
        self.before = [np.zeros(len(candidates))] * len(self.gather)
        for earlier, later in pairwise(candidates.by_rank):
            for before, index in zip(earlier, later, strict=True):
                self.before[index] = self.before[before] + self.gather[before]
        self.closing = "W" if schedules.get(candidates.schedule).SPLITS_BACKWARD else "B"
        self.reduces = [bool(row.any()) for row in self.reduce]
        self.behind = tails(self.parts, self.seconds[self.closing], self.reduce)
        self.freed: tuple[Floats, Floats] | None = None
        zero = [candidates.zero_of(pp_rank) for pp_rank in range(candidates.pp)]
        self.shards = [stage == 3 for stage in zero]
        ends = OPENING + CLOSING if self.tokens else ""
        self.always = [self.closing * (stage >= 2) + "FB" * (stage == 3) + ends for stage in zero]

    def some(self, rows: NDArray[np.int64]) -> Recurrence:
        """The recurrence of the candidates of the given indices."""
        selected = Recurrence(self.candidates.some(rows))
        if self.freed is not None:
            selected.freed = self.freed[0][:, rows], self.freed[1][:, rows]
        return selected

    def work_left(self, loops: Sequence[Loop], limit: Seconds) -> WorkLeft:
        """Work that ranks have left in the loops of a step."""
        return WorkLeft(self.candidates, self.seconds, self.sent if self.waits else None, self.wire["B"], loops, limit)

    def advance(self, state: Clocks, tasks: Sequence[Task]) -> None:
        """Advance a state in place over some tasks."""
        clocks, live, slowed, always, waits = state.pp_ranks, state.live, state.slowed, self.always, self.waits
        for pp_rank, kind, stage, microbatch, receives, held, sends, lane, cut in tasks:
            now = clocks[pp_rank]
            fresh = None  # an array without other references, so that one can add in place
            if receives is not None:
                arrived = live.pop(receives)
                if self.holds and kind in ARRIVES_FROM:
                    now = now + self.wire[kind][stage + ARRIVES_FROM[kind]]
                now = fresh = np.maximum(now, arrived)
                if (joint := self.joint[stage]) is not None and kind != "W":
                    now = self._joint(live, now, (kind, stage, microbatch, arrived), joint, held, sends)
                gathered = self.received[kind][stage]
                if gathered is not None:
                    now += gathered
            if held is not None:
                now, fresh = now + self.leaving["F"][stage], None
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
                    now = live[sends] = now + self.leaving[kind][stage]
                else:
                    ready = np.maximum(now, state.lanes[lane]) if lane in state.lanes else now
                    live[sends] = state.lanes[lane] = ready + wire
            clocks[pp_rank] = now

    def _joint(
        self, live: dict[Key, Floats], now: Floats, message: tuple[str, int, int, Floats], joint: Floats, held: Key | None,
        sends: Key | None,
    ) -> Floats:  # fmt: skip
        """When a task may begin that waits for a message from the next stage, and before whose rank's last forward one from the
        previous stage arrived: their links need `joint` seconds for both, from the begin of the first one on.

        message: kind, stage and microbatch of the task, and when its message arrives on an idle network."""
        kind, stage, microbatch, arrived = message
        if kind == "F" and sends is None and stage + 1 < len(self.joint):
            live["A", stage, microbatch] = arrived
        elif held is not None and (before := live.pop(("A", stage, held[2]), None)) is not None:
            begun = np.minimum(before - self.wire["F"][stage - 1], arrived - self.wire["B"][stage + 1])
            now = np.maximum(now, begun + joint)
        return now

    def _overlapped(self, state: Clocks, pp_rank: int, kind: str, stage: int, now: Floats, cut: bool) -> Floats:
        """The end of a task that gradient collectives may overlap."""
        if kind != "W" and self.shards[pp_rank]:
            return self._sharded(state, pp_rank, kind, stage, now)
        if kind in (OPENING, CLOSING):
            return self._beside(state, pp_rank, kind, stage, now)
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

    def _beside(self, state: Clocks, pp_rank: int, kind: str, stage: int, now: Floats) -> Floats:
        """The end of the first task of a pair, with which its exchanges of tokens begin, or of the last one, which waits for
        them. Gathers have ended before the first pair, and no gradient is reduced before the last one."""
        if kind == OPENING:
            state.streams[pp_rank] = now + self.tokens[stage]
            state.slowed[pp_rank] = BESIDE * self.slowing[BESIDE][pp_rank]
        ended = self._slowed(state, pp_rank, now, self.compute[kind][stage], self.seconds[kind][stage])
        if kind == OPENING:
            return ended
        state.slowed[pp_rank] = ""
        return np.maximum(ended, state.streams[pp_rank])

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
            shares = np.empty_like(self.parts)
            shares[self.candidates.by_rank] = self.slows["B"]
            own = self.parts, np.array(self.compute[self.closing]), np.array(self.seconds[self.closing]), self.reduce
            nothing = np.zeros(self.parts.shape)
            self.freed = part_by_part(nothing, nothing, *own, shares)
        return self.freed


def _add_pairs(recurrence: Recurrence, stage: Mapping[str, Floats]) -> list[Floats]:
    """Add the kinds of tasks of `sim.analytic.pass_order` that only schedules with pairs have; returns the seconds of the
    exchanges of tokens of a pair, by the stage of its forward."""
    seconds, compute, (first, second) = recurrence.seconds, recurrence.compute, recurrence.candidates.by_rank
    nothing = np.zeros_like(stage["forward"])
    for kind, alone in (("F", stage["forward_tokens"]), ("B", stage["inputs_tokens"])):
        seconds[PAIRED[kind]], compute[PAIRED[kind]] = seconds[kind], compute[kind]
        seconds[kind] = [own + more for own, more in zip(seconds[kind], alone, strict=True)]
        recurrence.received[ARRIVING[kind]], recurrence.wire[LEAVING[kind]] = recurrence.received[kind], recurrence.wire[kind]
        for empty in (ARRIVING[kind], LEAVING[kind]):
            seconds[empty], compute[empty] = list(nothing), nothing
    seconds[CLOSING], compute[CLOSING] = seconds["W"], compute["W"]
    other = np.empty(len(nothing), np.int64)
    other[first], other[second] = second, first
    return list(stage["forward_tokens"] + stage["inputs_tokens"][other])
