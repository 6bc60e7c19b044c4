"""Closed forms for the search: the steps of thousands of candidates at once, on an idle network.

What the engine plays event by event is here a recurrence over the turns of `sim.turns`, in the max-plus algebra (Baccelli,
Cohen, Olsder, Quadrat, Synchronization and Linearity, 1992): a turn begins when its place is free and its message has come, a
message leaves when it is handed over and its lane is free. Every quantity is an array over candidates, so one walk reckons all.

    end(turn)    = max(end(turn before), arrival(message)) + gather of its slices + seconds of the turn
    arrival      = max(end(turn), end(lane)) + wire     and where a schedule does not overlap sends, the place waits for it

Of n buckets of weights gathered ahead of a forward of f, each in g, the forward ends at max over k = 1 .. n of
k g + (n - k + 1) f / n, of which only the first and the last can be the most; reductions behind a backward alike. Where a
link's interference slows compute, buckets are reckoned one by one.

In a loop of equal blocks, a candidate whose clocks have all grown by one number over a block grows so for ever. The recurrence
is monotone, and adding a number to all clocks adds it to the next ones; so no difference between two states ever widens, and
what rounding leaves, at most `SETTLED` of a block in every block left out, is all that the answer can be off by.

Exact where replicas and the ranks of a tensor-parallel group are alike and no flow meets another on a link, but for those that
`sim.costs` counts as side by side; not above the engine where they meet. Flows of unlike replicas that count as side by side
come apart in the engine, and each waits for the others' gradients: there it may be off to either side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sim import schedules
from sim.candidates import PLACE, STAGE, Candidates, Floats
from sim.turns import Key, Loop, Turn, walk

SETTLED = 1e-12
"""Increments of clocks that differ by less than this share of themselves are equal."""
ROWS = 4096
"""Candidates reckoned at once: their arrays stay in the cache."""


def steps(candidates: Candidates) -> Floats:
    """Seconds of a step of every candidate, shape (candidates,)."""
    found = [_steps(candidates.some(slice(first, first + ROWS))) for first in range(0, len(candidates), ROWS)]
    return np.concatenate(found) if found else np.zeros(0)


def _steps(candidates: Candidates) -> Floats:
    state, player = _begin(candidates), _Player(candidates)
    for loop in walk(candidates.schedule, candidates.pp, candidates.microbatches, candidates.vpp):
        state = _repeat(player, state, loop)
    return _end(candidates, state)


@dataclass(slots=True)
class _State:
    """Clocks of places, lanes and messages on their way: arrays over candidates, never changed in place.

    `streams`: when the gradient collectives of a place are done; `busy`: until when and by what share they slow its compute.
    """

    clocks: list[Floats]
    streams: list[Floats]
    busy: list[tuple[Floats, Floats] | None]
    lanes: dict[int, Floats] = field(default_factory=dict)
    live: dict[Key, Floats] = field(default_factory=dict)

    def copy(self) -> _State:
        return _State(list(self.clocks), list(self.streams), list(self.busy), dict(self.lanes), dict(self.live))

    def parts(self) -> dict[object, Floats]:
        """All that the steady state moves, by name."""
        parts: dict[object, Floats] = dict(enumerate(self.clocks))
        return parts | {("lane", lane): end for lane, end in self.lanes.items()} | dict(self.live.items())

    def each(self, change: Callable[[object, Floats], Floats], later: int) -> _State:
        """Every array changed, messages on their way renamed to `later` microbatches later."""
        return _State(
            [change(place, clock) for place, clock in enumerate(self.clocks)],
            [change(None, stream) for stream in self.streams],
            list(self.busy),
            {lane: change(("lane", lane), end) for lane, end in self.lanes.items()},
            {(kind, stage, m + later): change((kind, stage, m), end) for (kind, stage, m), end in self.live.items()},
        )


class _Player:
    """Plays turns on candidates: their seconds by kind of turn and stage, looked up once."""

    def __init__(self, candidates: Candidates):
        self.candidates = candidates
        stage: dict[str, Floats] = dict(zip(STAGE, candidates.stages, strict=True))
        place: dict[str, Floats] = dict(zip(PLACE, candidates.places, strict=True))
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
        self.gather, self.reduce, self.parts = stage["gather"], stage["reduce"], stage["parts"]
        self.slows = {"F": place["gather_slows"], "B": place["reduce_slows"], "W": place["reduce_slows"]}
        self.before = [np.zeros(len(candidates))] * len(self.gather)
        for index in range(candidates.pp, len(self.gather)):
            self.before[index] = self.before[index - candidates.pp] + self.gather[index - candidates.pp]

    def play(self, state: _State, turns: Sequence[Turn]) -> None:
        """Bring a state from before some turns to behind them."""
        clocks, live, busy, waits = state.clocks, state.live, state.busy, self.waits
        for place, kind, stage, _, receives, held, sends, lane, cut in turns:
            now = clocks[place]
            fresh = None  # an array that nobody else holds, to add in place
            if receives is not None:
                now = fresh = np.maximum(now, live.pop(receives))
                gathered = self.received[kind][stage]
                if gathered is not None:
                    now += gathered
            if held is not None:
                now, fresh = now + self.wire["F"][stage], None
                live[held] = now
            if cut or busy[place] is not None:
                now = self._beside(state, place, kind, stage, now, cut)
            elif waits and sends is not None:
                clocks[place] = live[sends] = np.add(now, self.sent[kind][stage], out=fresh)
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
            clocks[place] = now

    def _beside(self, state: _State, place: int, kind: str, stage: int, now: Floats, cut: bool) -> Floats:
        """The end of a turn beside which gradient collectives may go on."""
        buckets = (self.gather if kind == "F" else self.reduce)[stage]
        if cut and buckets.any():
            return (self._behind_gathers if kind == "F" else self._before_reductions)(state, place, kind, stage, now)
        return self._slowed(state, place, now, self.compute[kind][stage], self.seconds[kind][stage])

    def _slowed(self, state: _State, place: int, now: Floats, compute: Floats, whole: Floats) -> Floats:
        """The end of `whole` seconds begun now, of which `compute` are slowed while the place's collectives go on.

        Of the d seconds that collectives still take, d s / (1 + s) are lost, and s times the compute at most.
        """
        slowing = state.busy[place]
        if slowing is None:
            return now + whole
        until, share = slowing
        lost = (until - now) * (share / (1.0 + share))
        if not (lost > 0.0).any():
            state.busy[place] = None
            return now + whole
        return now + whole + np.minimum(np.maximum(lost, 0.0), share * compute)

    def _behind_gathers(self, state: _State, place: int, kind: str, stage: int, now: Floats) -> Floats:
        """The end of a stage's first forward, each part of it behind a bucket of its weights."""
        n, whole, gather, begun = self.parts[stage], self.seconds[kind][stage], self.gather[stage], self.before[stage]
        if state.busy[place] is None:
            ended: Floats = np.maximum(now + whole, begun + np.maximum(gather / n + whole, gather + whole / n))
            return ended
        for compute, here, each in _buckets(n, self.compute[kind][stage], whole, gather):
            begun = begun + each
            now = self._slowed(state, place, np.maximum(now, begun), compute, here)
        return now

    def _before_reductions(self, state: _State, place: int, kind: str, stage: int, now: Floats) -> Floats:
        """The end of a stage's last backward, a bucket of its gradients reduced behind each part of it."""
        n, whole, reduce = self.parts[stage], self.seconds[kind][stage], self.reduce[stage]
        slows, stream = self.slows[kind][place], state.streams[place]
        if not slows.any():
            state.streams[place] = np.maximum(stream + reduce, now + np.maximum(whole / n + reduce, whole + reduce / n))
            return now + whole
        for compute, here, each in _buckets(n, self.compute[kind][stage], whole, reduce):
            now = self._slowed(state, place, now, compute, here)
            stream = np.maximum(stream, now) + each
            state.busy[place] = stream, slows
        state.streams[place] = stream
        return now


def _buckets(n: Floats, *seconds: Floats) -> Iterator[tuple[Floats, ...]]:
    """Seconds in n parts, part by part; nothing is left for candidates that have fewer parts than others."""
    shares, least = tuple(one / n for one in seconds), int(n.min())
    for part in range(int(n.max())):
        yield shares if part < least else tuple(share * (part < n) for share in shares)


def _begin(candidates: Candidates) -> _State:
    """Nothing computed yet; each place gathers the weights of its stages, one after the other."""
    gather, slows = candidates.stages[STAGE.index("gather")], candidates.places[PLACE.index("gather_slows")]
    nothing = np.zeros(len(candidates))
    gathered = [gather[place :: candidates.pp].sum(axis=0) for place in range(candidates.pp)]
    busy = [(until, share) if until.any() and share.any() else None for until, share in zip(gathered, slows, strict=True)]
    return _State([nothing] * candidates.pp, gathered, busy)


def _end(candidates: Candidates, state: _State) -> Floats:
    """Behind the last turns: reductions, the sum of a tied embedding between the end stages, the optimizer."""
    place = dict(zip(PLACE, candidates.places, strict=True))
    ready = [np.maximum(*both) for both in zip(state.clocks, state.streams, strict=True)]
    ready = [end + reduced for end, reduced in zip(ready, place["reduced"], strict=True)]
    tied = np.maximum(ready[0], ready[-1]) + candidates.tied
    ready[0], ready[-1] = np.maximum(ready[0], tied), np.maximum(ready[-1], tied)
    ends: Floats = np.array(ready) + place["updated"]
    return np.asarray(ends.max(axis=0), dtype=np.float64)


def _repeat(player: _Player, state: _State, loop: Loop) -> _State:
    """The state behind a loop: block by block, until the increments of all candidates have settled."""
    rows, left = np.arange(len(player.candidates)), len(loop.blocks)
    done: list[tuple[NDArray[np.int64], _State]] = []
    for block in loop.blocks:
        before = state.copy()
        player.play(state, block)
        left -= 1
        grown = _grown(before, state, loop.later) if left and not any(state.busy) else {}
        if not grown:
            continue
        least, most = np.min(list(grown.values()), axis=0), np.max(list(grown.values()), axis=0)
        settled = most - least <= SETTLED * most
        if settled.any():
            done.append((rows[settled], _some(_later(state, grown, left, loop.later), settled)))
            rows, state = rows[~settled], _some(state, ~settled)
            if not len(rows):
                break
            player = _Player(player.candidates.some(np.flatnonzero(~settled)))
    else:
        done.append((rows, state))
    return done[0][1] if len(done) == 1 else _joined(done)


def _grown(before: _State, after: _State, later: int) -> dict[object, Floats]:
    """By how much everything that moves has grown over a block; empty where not the same things are under way."""
    old, new = before.each(lambda _, ends: ends, later).parts(), after.parts()
    return {name: new[name] - old[name] for name in new} if old.keys() == new.keys() else {}


def _later(state: _State, grown: dict[object, Floats], blocks: int, later: int) -> _State:
    """The state so many blocks later, each of which adds the same."""
    return state.each(lambda name, ends: ends + blocks * grown[name] if name is not None else ends, blocks * later)


def _some(state: _State, rows: NDArray[np.bool_]) -> _State:
    return state.each(lambda _, ends: ends[rows], 0)


def _joined(done: list[tuple[NDArray[np.int64], _State]]) -> _State:
    """The states of some candidates each as one of all, in their order."""
    order = np.argsort(np.concatenate([rows for rows, _ in done]))
    parts = [state.parts() for _, state in done]

    def together(pieces: list[Floats]) -> Floats:
        return np.concatenate(pieces)[order]

    whole = done[-1][1].each(lambda name, ends: ends if name is None else together([part[name] for part in parts]), 0)
    whole.streams = [together(list(pieces)) for pieces in zip(*(state.streams for _, state in done), strict=True)]
    return whole
