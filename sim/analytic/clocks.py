"""The clocks of a walk over turns: what moves of many candidates at once, how it grows and what it is so many blocks later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sim.analytic.candidates import Floats
from sim.analytic.pass_order import Key

Name: TypeAlias = int | tuple[str, int] | Key
"""What moves: the clock of a place, ("stream", place), ("lane", lane), a message on its way."""


@dataclass(slots=True)
class Clocks:
    """Clocks of places, streams, lanes and messages on their way: arrays over candidates, never changed in place.

    `streams`: when the gradient collectives of a place are done; `slowed`: "F" where gathers slow its compute until then, "B"
    where reductions do, "" where nothing does.
    """

    places: list[Floats]
    streams: list[Floats]
    slowed: list[str]
    lanes: dict[int, Floats] = field(default_factory=dict)
    live: dict[Key, Floats] = field(default_factory=dict)

    def copy(self) -> Clocks:
        """The same now, whatever becomes of these."""
        return Clocks(list(self.places), list(self.streams), list(self.slowed), dict(self.lanes), dict(self.live))

    def each(self, change: Callable[[Name, Floats], Floats], later: int = 0) -> Clocks:
        """Every array changed, messages on their way renamed to `later` microbatches later."""
        return Clocks(
            [change(place, clock) for place, clock in enumerate(self.places)],
            [change(("stream", place), stream) for place, stream in enumerate(self.streams)],
            list(self.slowed),
            {lane: change(("lane", lane), end) for lane, end in self.lanes.items()},
            {(kind, stage, m + later): change((kind, stage, m), end) for (kind, stage, m), end in self.live.items()},
        )

    def some(self, rows: NDArray[np.bool_]) -> Clocks:
        """Those of some of the candidates."""
        return self.each(lambda _, ends: ends[rows])

    def grown(self, before: Clocks, later: int, streams: bool) -> dict[Name, Floats]:
        """By how much everything that moves has grown over a block; empty where not the same things are under way.

        A stream that is done counts as its place's clock: nothing depends on since when. Without `streams` none counts.
        """
        old, new = (clocks._named(streams) for clocks in (before.each(lambda _, ends: ends, later), self))
        return {name: new[name] - old[name] for name in new} if old.keys() == new.keys() else {}

    def later(self, grown: dict[Name, Floats], blocks: int, later: int) -> Clocks:
        """The clocks so many blocks of `later` microbatches later, each of which adds the same."""
        return self.each(lambda name, ends: ends + blocks * grown[name] if name in grown else ends, blocks * later)

    def _named(self, streams: bool) -> dict[Name, Floats]:
        named: dict[Name, Floats] = dict(enumerate(self.places))
        if streams:
            pairs = zip(self.streams, self.places, strict=True)
            named |= {("stream", place): np.maximum(*pair) for place, pair in enumerate(pairs)}
        return named | {("lane", lane): end for lane, end in self.lanes.items()} | dict(self.live.items())

    def all(self) -> dict[Name, Floats]:
        """Every array by name."""
        named: dict[Name, Floats] = {}
        self.each(lambda name, ends: named.setdefault(name, ends))
        return named


def joined(done: Sequence[tuple[NDArray[np.int64], Clocks]]) -> Clocks:
    """The clocks of some candidates each (their rows are given) as one of all, in their order."""
    order = np.argsort(np.concatenate([rows for rows, _ in done]))
    parts = [clocks.all() for _, clocks in done]
    whole = done[-1][1].each(lambda name, _: np.concatenate([part[name] for part in parts])[order])
    whole.slowed = [max(kinds) for kinds in zip(*(clocks.slowed for _, clocks in done), strict=True)]
    return whole
