"""Closed forms for the search: the steps of thousands of candidates at once, on an idle network.

What the engine plays event by event is here a recurrence over the turns of `sim.analytic.pass_order`, in the max-plus algebra
(Baccelli, Cohen, Olsder, Quadrat, Synchronization and Linearity, 1992): a turn begins when its place is free and its message
has come, a message leaves when it is handed over and its lane is free. Every quantity is an array over candidates, so one walk
reckons all.

    end(turn)    = max(end(turn before), arrival(message)) + gather of its slices + seconds of the turn
    arrival      = max(end(turn), end(lane)) + wire     and where a schedule does not overlap sends, the place waits for it

Of n buckets of weights gathered ahead of a forward of f, each in g, the forward ends at max over k = 1 .. n of
k g + (n - k + 1) f / n, of which only the first and the last can be the most; reductions behind a backward alike. Where a
link's interference slows compute, buckets are reckoned one by one.

ZeRO 2 reduces so behind every backward, and reductions of one microbatch slow the next. A turn of ZeRO 3 begins with a gather
that waits for its place and its stream, and all else of it follows: from then on it takes one number (`sim.kernels.shards`).

In a loop of equal blocks, a candidate whose clocks have all grown by one number over a block grows so for ever. The recurrence
is monotone, and adding a number to all clocks adds it to the next ones; so no difference between two states ever widens, and
what rounding leaves, at most `SETTLED` of a block in every block left out, is all that the answer can be off by. A stream that
no turn waits for may grow by more than the rest, if it never rests (`_settled`).

Exact where replicas and the ranks of a tensor-parallel group are alike and no flow meets another on a link, but for those that
`sim.analytic.plan_costs` counts alike; not above the engine where they meet. Flows of unlike replicas that count as side
by side come apart in the engine, and each waits for the others' gradients: there it may be off to either side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sim.analytic.candidates import PLACE, STAGE, Candidates, Floats
from sim.analytic.clocks import Clocks, Name, joined
from sim.analytic.pass_order import Loop, Turn, walk
from sim.plan import schedules

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
        self.parts, self.gather, self.reduce, self.stream = (stage[name] for name in ("parts", "gather", "reduce", "stream"))
        self.slows = {"F": place["gather_slows"], "B": place["reduce_slows"]}
        self.slowing = {kind: [bool(share.any()) for share in shares] for kind, shares in self.slows.items()}
        self.before = [np.zeros(len(candidates))] * len(self.gather)
        for index in range(candidates.pp, len(self.gather)):
            self.before[index] = self.before[index - candidates.pp] + self.gather[index - candidates.pp]
        self.closing = "W" if schedules.get(candidates.schedule).SPLITS_BACKWARD else "B"
        self.reduces = [bool(row.any()) for row in self.reduce]
        self.behind = _tails(self.parts, self.seconds[self.closing], self.reduce)
        self.freed: dict[int, tuple[Floats, Floats]] = {}
        self.always = (self.closing if candidates.reduces_each_microbatch else "") + "FB" * candidates.shards_parameters

    def some(self, rows: NDArray[np.int64]) -> _Player:
        """A player of some of the candidates."""
        player = _Player(self.candidates.some(rows))
        player.freed = {stage: (ended[rows], stream[rows]) for stage, (ended, stream) in self.freed.items()}
        return player

    def play(self, state: Clocks, turns: Sequence[Turn]) -> None:
        """Bring a state from before some turns to behind them."""
        clocks, live, slowed, always, waits = state.places, state.live, state.slowed, self.always, self.waits
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
            if cut or slowed[place] or kind in always:
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

    def _beside(self, state: Clocks, place: int, kind: str, stage: int, now: Floats, cut: bool) -> Floats:
        """The end of a turn beside which gradient collectives may go on."""
        if kind != "W" and self.candidates.shards_parameters:
            return self._sharded(state, place, kind, stage, now)
        if kind == self.closing and (cut or kind in self.always) and self.reduces[stage]:
            return self._before_reductions(state, place, kind, stage, now)
        if kind == "F" and cut and self.gather[stage].any():
            return self._behind_gathers(state, place, kind, stage, now)
        return self._slowed(state, place, now, self.compute[kind][stage], self.seconds[kind][stage])

    def _sharded(self, state: Clocks, place: int, kind: str, stage: int, now: Floats) -> Floats:
        """The end of a turn that gathers its weights layer by layer: its first gather waits for all that went before."""
        begun: Floats = np.maximum(now, state.streams[place])
        state.slowed[place] = ""
        if kind == "B":
            state.streams[place] = begun + self.stream[stage]
        ended: Floats = begun + self.seconds[kind][stage]
        return ended

    def _slowed(self, state: Clocks, place: int, now: Floats, compute: Floats, whole: Floats) -> Floats:
        """The end of `whole` seconds begun now, of which `compute` are slowed while the place's collectives go on.

        Of the d seconds that collectives still take, d s / (1 + s) are lost, and s times the compute at most.
        """
        if not state.slowed[place]:
            return now + whole
        share: Floats = self.slows[state.slowed[place]][place]
        lost = (state.streams[place] - now) * (share / (1.0 + share))
        if not (lost > 0.0).any():
            state.slowed[place] = ""
            return now + whole
        return now + whole + np.minimum(np.maximum(lost, 0.0), share * compute)

    def _behind_gathers(self, state: Clocks, place: int, kind: str, stage: int, now: Floats) -> Floats:
        """The end of a stage's first forward, each part of it behind a bucket of its weights."""
        n, whole, gather, begun = self.parts[stage], self.seconds[kind][stage], self.gather[stage], self.before[stage]
        if not state.slowed[place]:
            ended: Floats = np.maximum(now + whole, begun + np.maximum(gather / n + whole, gather + whole / n))
            return ended
        for compute, here, each in _buckets(n, self.compute[kind][stage], whole, gather):
            begun = begun + each
            now = self._slowed(state, place, np.maximum(now, begun), compute, here)
        return now

    def _before_reductions(self, state: Clocks, place: int, kind: str, stage: int, now: Floats) -> Floats:
        """The end of a turn that closes a microbatch, a bucket of its gradients reduced behind each part of it.

        Beside a stream that is free, or that is not done when the turn ends, it is a number; between them parts are reckoned.
        """
        whole, reduce = self.seconds[kind][stage], self.reduce[stage]
        if not self.slowing["B"][place]:
            state.streams[place], state.slowed[place] = np.maximum(state.streams[place] + reduce, now + self.behind[stage]), ""
            return now + whole
        state.slowed[place] = "B"
        own = self.parts[stage], self.compute[kind][stage], whole, reduce, self.slows["B"][place]
        begun, behind = self._freed(stage, own)
        late, slowest = state.streams[place] - now, whole + own[1] * own[-1]
        ended = now + np.where(late > 0.0, slowest, begun)
        stream = np.where(late > 0.0, state.streams[place] + reduce, now + behind)
        between = np.flatnonzero((late > 0.0) & (late < slowest))
        if len(between):
            some = (one[between] for one in (now, state.streams[place], *own))
            ended[between], stream[between] = _part_by_part(*some)
        state.streams[place] = stream
        return ended

    def _freed(self, stage: int, own: tuple[Floats, ...]) -> tuple[Floats, Floats]:
        """Ends of a closing turn and its stream, counted from its begin, where the stream is free by then; reckoned once."""
        if stage not in self.freed:
            nothing = np.zeros(len(self.candidates))
            self.freed[stage] = _part_by_part(nothing, nothing, *own)
        return self.freed[stage]


def _part_by_part(
    now: Floats, stream: Floats, n: Floats, compute: Floats, whole: Floats, reduce: Floats, share: Floats
) -> tuple[Floats, Floats]:
    """Ends of a turn in n parts and of its stream, behind each part a bucket of its gradients that slows the next ones."""
    for slowed, here, each in _buckets(n, compute, whole, reduce):
        lost = (stream - now) * (share / (1.0 + share))
        now = now + here + np.minimum(np.maximum(lost, 0.0), share * slowed)
        stream = np.maximum(stream, now) + each
    return now, stream


def _tails(n: Floats, seconds: list[Floats], reduce: Floats) -> Floats:
    """When reductions in n buckets behind turns of n parts are done, counted from the turns' begin; of all stages."""
    whole = np.array(seconds)
    tails: Floats = np.maximum(whole / n + reduce, whole + reduce / n)
    return tails


def _buckets(n: Floats, *seconds: Floats) -> Iterator[tuple[Floats, ...]]:
    """Seconds in n parts, part by part; nothing is left for candidates that have fewer parts than others."""
    shares, least = tuple(one / n for one in seconds), int(n.min())
    for part in range(int(n.max())):
        yield shares if part < least else tuple(share * (part < n) for share in shares)


def _begin(candidates: Candidates) -> Clocks:
    """Nothing computed yet; each place gathers the weights of its stages, one after the other."""
    gather, slows = candidates.stages[STAGE.index("gather")], candidates.places[PLACE.index("gather_slows")]
    nothing = np.zeros(len(candidates))
    gathered = [gather[place :: candidates.pp].sum(axis=0) for place in range(candidates.pp)]
    slowed = ["F" if until.any() and share.any() else "" for until, share in zip(gathered, slows, strict=True)]
    return Clocks([nothing] * candidates.pp, gathered, slowed)


def _end(candidates: Candidates, state: Clocks) -> Floats:
    """Behind the last turns: reductions, the sum of a tied embedding between the end stages, the optimizer."""
    place = dict(zip(PLACE, candidates.places, strict=True))
    ready = [np.maximum(*both) for both in zip(state.places, state.streams, strict=True)]
    ready = [end + reduced for end, reduced in zip(ready, place["reduced"], strict=True)]
    tied = np.maximum(ready[0], ready[-1]) + candidates.tied
    ready[0], ready[-1] = np.maximum(ready[0], tied), np.maximum(ready[-1], tied)
    ends: Floats = np.array(ready) + place["updated"]
    return np.asarray(ends.max(axis=0), dtype=np.float64)


def _repeat(player: _Player, state: Clocks, loop: Loop) -> Clocks:
    """The clocks behind a loop: block by block, until the increments of all candidates have settled."""
    rows, left, moving = np.arange(len(player.candidates)), len(loop.blocks), player.candidates.reduces_each_microbatch
    done: list[tuple[NDArray[np.int64], Clocks]] = []
    for block in loop.blocks:
        before = state.copy()
        player.play(state, block)
        left -= 1
        changing = "F" in state.slowed or (any(state.slowed) and not moving)
        grown = state.grown(before, loop.later, moving) if left and not changing else {}
        if not grown:
            continue
        settled = _settled(player, state, grown, block)
        if settled.any():
            done.append((rows[settled], state.later(grown, left, loop.later).some(settled)))
            rows, state = rows[~settled], state.some(~settled)
            if not len(rows):
                break
            player = player.some(np.flatnonzero(~settled))
    else:
        done.append((rows, state))
    return done[0][1] if len(done) == 1 else joined(done)


def _settled(player: _Player, state: Clocks, grown: dict[Name, Floats], block: Sequence[Turn]) -> NDArray[np.bool_]:
    """Which candidates grow so for ever: by one number all that moves.

    A stream of reductions that no turn waits for may also fall behind ever more: where it has done nothing but reduce since the
    block began and still does, it goes on so, and slows all compute beside it.
    """
    streams = {place: grown.pop(name) for place in range(len(state.places)) if (name := ("stream", place)) in grown}
    least, most = np.min(list(grown.values()), axis=0), np.max(list(grown.values()), axis=0)
    settled: NDArray[np.bool_] = most - least <= SETTLED * most
    for place, growth in streams.items():
        grown["stream", place] = growth
        alike = abs(growth - most) <= SETTLED * most
        if not player.candidates.shards_parameters and not alike.all():
            reduced = sum(player.reduce[turn.stage] for turn in block if turn.place == place and turn.kind == player.closing)
            behind = state.streams[place] > state.places[place]
            alike |= behind & (growth > most) & (abs(growth - reduced) <= SETTLED * growth)
        settled &= alike
    return settled
