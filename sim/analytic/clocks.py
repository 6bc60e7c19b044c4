"""State of the max-plus recurrence: the clocks of many candidates at once, their growth over a block, and extrapolation.

A clock is the time at which a resource becomes free or a message arrives: an array over candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sim.analytic.candidates import Floats
from sim.analytic.pass_loops import Key

Name: TypeAlias = int | tuple[str, int] | Key
"""Name of a clock: a pipeline rank, ("stream" or "reduction", pipeline rank), ("lane", lane), or the key of a message in
transit."""


@dataclass(slots=True)
class Clocks:
    """Clocks of pipeline ranks, gradient streams, message lanes and messages in transit. Arrays are replaced, not modified.

    `streams`: when the gradient collectives of a pipeline rank end, or in a pair of passes its exchanges of tokens; `slowed`:
    "F" where gathers slow its compute until then, "B" where reductions do, "E" where exchanges do, "" where nothing does;
    `reductions`: when its latest task had the first bucket to reduce.
    """

    pp_ranks: list[Floats]
    streams: list[Floats]
    slowed: list[str]
    reductions: list[Floats]
    lanes: dict[int, Floats] = field(default_factory=dict)
    live: dict[Key, Floats] = field(default_factory=dict)

    def copy(self) -> Clocks:
        """A copy that later changes of this state do not affect; it shares the arrays."""
        lists = list(self.pp_ranks), list(self.streams), list(self.slowed), list(self.reductions)
        return Clocks(*lists, dict(self.lanes), dict(self.live))

    def mapped(self, change: Callable[[Name, Floats], Floats], later: int = 0) -> Clocks:
        """A copy with `change(name, clock)` for every clock; messages in transit get keys `later` microbatches later."""
        return Clocks(
            [change(pp_rank, clock) for pp_rank, clock in enumerate(self.pp_ranks)],
            [change(("stream", pp_rank), stream) for pp_rank, stream in enumerate(self.streams)],
            list(self.slowed),
            [change(("reduction", pp_rank), begun) for pp_rank, begun in enumerate(self.reductions)],
            {lane: change(("lane", lane), end) for lane, end in self.lanes.items()},
            {(kind, stage, m + later): change((kind, stage, m), end) for (kind, stage, m), end in self.live.items()},
        )

    def some(self, rows: NDArray[np.bool_]) -> Clocks:
        """The clocks of the selected candidates."""
        return self.mapped(lambda _, ends: ends[rows])

    def growth(self, before: Clocks, later: int, streams: bool) -> dict[Name, Floats]:
        """Growth of every clock over a block of `later` microbatches; empty if the messages in transit do not correspond.

        A stream that has ended counts as the clock of its pipeline rank, for nothing depends on when it ended. Streams are left
        out unless `streams`.
        """
        old, new = (clocks._named(streams) for clocks in (before.mapped(lambda _, ends: ends, later), self))
        return {name: new[name] - old[name] for name in new} if old.keys() == new.keys() else {}

    def extrapolated(self, growth: dict[Name, Floats], blocks: int, later: int) -> Clocks:
        """The clocks after `blocks` more blocks of `later` microbatches, each of which adds the same growth."""
        return self.mapped(lambda name, ends: ends + blocks * growth[name] if name in growth else ends, blocks * later)

    def _named(self, streams: bool) -> dict[Name, Floats]:
        named: dict[Name, Floats] = dict(enumerate(self.pp_ranks))
        if streams:
            pairs = zip(self.streams, self.pp_ranks, strict=True)
            named |= {("stream", pp_rank): np.maximum(*pair) for pp_rank, pair in enumerate(pairs)}
        return named | {("lane", lane): end for lane, end in self.lanes.items()} | dict(self.live.items())

    def all(self) -> dict[Name, Floats]:
        """Every clock by name."""
        named: dict[Name, Floats] = {}
        self.mapped(lambda name, ends: named.setdefault(name, ends))
        return named


def joined(done: Sequence[tuple[NDArray[np.int64], Clocks]]) -> Clocks:
    """Merge the clocks of disjoint sets of candidates, each given with its indices, into one state in the order of indices."""
    order = np.argsort(np.concatenate([rows for rows, _ in done]))
    parts = [clocks.all() for _, clocks in done]
    whole = done[-1][1].mapped(lambda name, _: np.concatenate([part[name] for part in parts])[order])
    whole.slowed = [max(kinds) for kinds in zip(*(clocks.slowed for _, clocks in done), strict=True)]
    return whole
