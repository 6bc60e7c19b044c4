"""The log of a simulation: spans of all ranks, in the order in which they end or are extrapolated."""

from __future__ import annotations

from typing import NamedTuple

from sim.engine.copies import Name
from sim.engine.parts import Parts
from sim.engine.state import Rank
from sim.engine.timeline import Span
from sim.plan.program import Action
from sim.units import Seconds

ROUNDING = 1e-13
"""Times count as equal if they differ by at most this share of the clock: some hundred times the rounding of a double."""


class Label(NamedTuple):
    """What a span belongs to: the action that names it, the kind of group, and whether it is of one microbatch."""

    action: Action
    group: str = ""
    prefix: str = ""
    has_microbatch: bool = True


class SpanLog:
    """Spans by index, simulated ones and copies (`sim.engine.copies`), and the names of those that were simulated."""

    def __init__(self) -> None:
        self.spans: Parts[Span] = Parts()
        self.names: dict[int, Name] = {}

    def end_of(self, index: int) -> Seconds:
        """The end of a span."""
        return self.spans[index].end

    def add(
        self, rank: Rank, lane: str, kind: str, start: Seconds, end: Seconds, label: Label, after: int = -1
    ) -> int:  # fmt: skip
        """Log a span and return its index; a span without duration is left out, and `after` is returned in its place.

        A wait whose duration is rounding is left out, too: nothing comes after a wait, and no period with a span as short as
        that can be extrapolated (`sim.engine.steady_state`)."""
        if end <= start or (lane == "wait" and end - start <= ROUNDING * end):
            return after
        action, group, prefix, has_microbatch = label
        rate = rank.program.rates.of_action(action)
        index, number = len(self.spans), action.microbatch + rank.component.skipped * rate
        stage, microbatch = (action.stage, number) if has_microbatch else (-1, -1)
        head, tail = action.text
        name = f"{prefix}{head}" if tail is None else f"{prefix}{head}{number}{tail}"
        self.spans.append(Span(rank.rank, lane, name, kind, start, end, stage, microbatch, group, after))
        self.names[index] = prefix + head, number, tail, rate
        rank.component.spans.append(index)
        return index


class LastEnd(SpanLog):
    """The end of the last span alone, of simulations that are asked for no more than the seconds of a step.

    No span is kept, so that spans have no index, and steady states cannot be extrapolated."""

    def __init__(self) -> None:
        super().__init__()
        self.end: Seconds = 0.0

    def end_of(self, index: int) -> Seconds:
        """0: which of two spans a span comes after is not asked for."""
        return 0.0

    def add(
        self, rank: Rank, lane: str, kind: str, start: Seconds, end: Seconds, label: Label, after: int = -1
    ) -> int:  # fmt: skip
        """Take note of the end of a span that `SpanLog` would log, and return `after`."""
        if end > self.end and end > start and (lane != "wait" or end - start > ROUNDING * end):
            self.end = end
        return after
