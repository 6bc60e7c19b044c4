"""The order in which a pipeline's turns are reckoned: every place's turns by the schedule, and what of them repeats.

A turn is one compute action of one place, with the message that it waits for and the one that it sends behind. Turns come in
passes: in each pass every place, one after the other, takes at most one turn of each kind, if its message has been sent. So a
turn stands behind all that it depends on, and in the steady state of a schedule one pass is like the one before, a microbatch
later (under virtual stages pp x vpp passes are, pp microbatches later). Loops name such runs of passes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, overload

from sim.kernels import lowering
from sim.plan import schedules

Key: TypeAlias = tuple[str, int, int]
"""A message: "F" or "B", the stage that sends it, the microbatch."""

LISTED = 4
"""Times (pp + `BLOCK`) microbatches are listed one by one: enough for the fill, three blocks of the steady state and the
drain."""
BLOCK = 12
"""Passes of a loop's block. Where a round trip of several microbatches sets the pace, increments are equal only from one round
to the next; 12 is a multiple of the short ones."""


class Turn(NamedTuple):
    """One compute action. `held` is a message kept back until the one received has come; `lane` the way of the one sent.

    `cut`: it may be cut at buckets, because weights are gathered ahead of it (a stage's first forward) or gradients are reduced
    behind it (its last backward, or W).
    """

    place: int
    kind: str
    stage: int
    microbatch: int
    receives: Key | None
    held: Key | None
    sends: Key | None
    lane: int
    cut: bool

    def later(self, by: int) -> Turn:
        """The same turn `by` microbatches later."""
        receives, held, sends = (key and (*key[:2], key[2] + by) for key in (self.receives, self.held, self.sends))
        return self._replace(microbatch=self.microbatch + by, receives=receives, held=held, sends=sends)


Pass: TypeAlias = tuple[Turn, ...]


class Repeated(Sequence[tuple[Turn, ...]]):
    """`count` blocks of turns, each the first one so many microbatches `later`; a block is made when it is asked for."""

    def __init__(self, first: tuple[Turn, ...], count: int, later: int):
        self._first, self._count, self._later = first, count, later

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> tuple[Turn, ...]: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[tuple[Turn, ...], ...]: ...

    def __getitem__(self, index: int | slice) -> tuple[Turn, ...] | tuple[tuple[Turn, ...], ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(self._count)))
        if not -self._count <= index < self._count:
            raise IndexError(index)
        return tuple(turn.later(index % self._count * self._later) for turn in self._first)


@dataclass(frozen=True, slots=True)
class Loop:
    """Blocks of passes, each like the one before, `later` microbatches later. A block that stands alone is no repetition."""

    blocks: Sequence[tuple[Turn, ...]]
    later: int = 0


@functools.lru_cache(maxsize=256)
def walk(schedule: str, pp: int, microbatches: int, vpp: int) -> tuple[Loop, ...]:
    """All turns of a step in an order in which each stands behind all that it depends on.

    Of many microbatches only some are listed; where these have one loop, the others make it longer and the rest later."""
    if vpp == 1 and schedules.get(schedule).CHUNKED:  # its blocks and its rounds of pp microbatches seldom agree
        return walk_at_length(schedule, pp, microbatches, vpp)
    period = BLOCK if vpp == 1 else pp
    more = max(microbatches - LISTED * (pp + BLOCK), 0) // period
    loops = walk_at_length(schedule, pp, microbatches - more * period, vpp)
    if not more:
        return loops
    if len(loops) != 3 or loops[1].later != period:
        return walk_at_length(schedule, pp, microbatches, vpp)
    head, loop, rest = loops
    longer = Loop(Repeated(loop.blocks[0], len(loop.blocks) + more, period), period)
    return head, longer, Loop((tuple(turn.later(more * period) for turn in rest.blocks[0]),))


def walk_at_length(schedule: str, pp: int, microbatches: int, vpp: int) -> tuple[Loop, ...]:
    """The same with every microbatch listed."""
    passes = _passes([_turns(schedule, place, pp, microbatches, vpp) for place in range(pp)])
    period, later, blocks = (1, 1, BLOCK) if vpp == 1 else (pp * vpp, pp, 1)
    alike = [_like(a, b, later) for a, b in zip(passes, passes[period:], strict=False)]
    length, loops, at = period * blocks, [], 0
    alone: list[Turn] = []
    while at < len(passes):
        run = next((k for k, same in enumerate(alike[at:]) if not same), max(len(alike) - at, 0))
        count = (run + period) // length if run else 0
        if count < 3:
            alone += [turn for one in passes[at : at + run + 1] for turn in one]
            at += run + 1
            continue
        starts = range(at, at + count * length, length)
        loops.append(Loop((tuple(alone),)))
        loops.append(Loop(tuple(tuple(t for one in passes[k : k + length] for t in one) for k in starts), later * blocks))
        alone, at = [], at + count * length
    return (*loops, Loop((tuple(alone),)))


def _like(one: Pass, other: Pass, later: int) -> bool:
    return len(one) == len(other) and all(a.later(later) == b for a, b in zip(one, other, strict=True))


def _turns(schedule: str, place: int, pp: int, microbatches: int, vpp: int) -> list[Turn]:
    """Turns of a pipeline place in the order of its program (`sim.kernels.lowering.moves`)."""
    closing = "W" if schedules.get(schedule).SPLITS_BACKWARD else "B"
    moves = tuple(lowering.moves(schedule, place, pp, microbatches, vpp))
    last = {move.stage: index for index, move in enumerate(moves) if move.kind == closing}
    first = {move.stage: index for index, move in reversed(list(enumerate(moves))) if move.kind == "F"}
    turns: list[Turn] = []
    receives: Key | None = None
    held: Key | None = None
    for index, move in enumerate(moves):
        key = move.operation, move.stage, move.microbatch
        if move.kind == "recv":
            receives = key
        elif move.kind == "send" and receives is None:
            turns[-1] = turns[-1]._replace(sends=key, lane=place * pp + move.peer)
        elif move.kind == "send":
            held = key
        else:
            cut = index in (first[move.stage], last[move.stage])
            turns.append(Turn(place, move.kind, move.stage, move.microbatch, receives, held, None, 0, cut))
            receives = held = None
    return turns


def _passes(turns: list[list[Turn]]) -> list[Pass]:
    """Turns of all places, pass by pass."""
    left = [iter(mine) for mine in turns]
    following = [next(mine, None) for mine in left]
    sent: set[Key] = set()
    passes: list[Pass] = []
    while any(following):
        taken: list[Turn] = []
        for place, mine in enumerate(left):
            kinds: set[str] = set()
            while (turn := following[place]) and turn.kind not in kinds and (turn.receives is None or turn.receives in sent):
                kinds.add(turn.kind)
                sent.update(key for key in (turn.held, turn.sends) if key)
                taken.append(turn)
                following[place] = next(mine, None)
        assert taken, "every place waits for another"
        passes.append(tuple(taken))
    return passes
