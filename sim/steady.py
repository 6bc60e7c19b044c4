"""The steady state of a pipeline is periodic: what happens in one period is told again and again, without playing it.

The future of a run follows from its state: where every rank is in its program, since when and until when it does what it does,
which messages and collectives are under way, how far they are, and who has come to them. Where two states are the same but for
the microbatches' numbers (equal things happened equally long ago), and all programs go on to repeat what they did between them,
so does the run. Then the spans between both moments are copied as often as the programs repeat, and the run goes on behind the
last copy. This is exact but for the rounding of times (`ROUNDING`); where no state comes again nothing is left out.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sim.timeline import Span
from sim.units import Seconds

ROUNDING = 1e-13
"""Times that differ by less than this part of the time gone by are equal: some hundred roundings of a double."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The state of a run at a time. `shape` and `times` (seconds from now) count microbatches from `microbatch` and spans from
    `spans`, the number there are; `pieces` are the places of the ranks in their programs."""

    now: Seconds
    microbatch: int
    spans: int
    pieces: tuple[int, ...]
    shape: tuple[Hashable, ...]
    times: tuple[Seconds, ...]

    def repeats(self, earlier: Moment) -> bool:
        """Whether the run is where it was, `microbatch` and `pieces` aside."""
        dust = ROUNDING * self.now
        return self.shape == earlier.shape and all(abs(a - b) <= dust for a, b in zip(self.times, earlier.times, strict=True))


@dataclass(frozen=True, slots=True)
class Jump:
    """The spans from `first` to before `past_last` happen `times` more, each time `seconds` and `microbatches` later."""

    first: int
    past_last: int
    times: int
    seconds: Seconds
    microbatches: int


Name: TypeAlias = tuple[str, int, str | None]
"""The name of a span: what stands before and behind the number of its microbatch; None where the name has no number."""


def stretched(spans: Sequence[Span], names: Sequence[Name], jumps: Sequence[Jump]) -> list[Span]:
    """All spans of a run that has jumped, with their names."""
    made: list[Span] = []
    told, more, late, skipped = 0, 0, 0.0, 0

    def tell(first: int, past_last: int, more: int, late: Seconds, skipped: int) -> None:
        for span, (head, number, tail) in zip(spans[first:past_last], names[first:past_last], strict=True):
            rank, lane, _, kind, start, end, stage, microbatch, group, after = span
            after, start = (after + more, made[after + more].end) if after >= 0 else (-1, start + late)
            name = head if tail is None else f"{head}{number + skipped}{tail}"
            microbatch = microbatch + skipped if stage >= 0 else -1
            made.append(Span(rank, lane, name, kind, start, end + late, stage, microbatch, group, after))

    for jump in jumps:
        tell(told, jump.past_last, more, late, skipped)
        for time in range(1, jump.times + 1):
            spans_more = more + time * (jump.past_last - jump.first)
            tell(jump.first, jump.past_last, spans_more, late + time * jump.seconds, skipped + time * jump.microbatches)
        told, more = jump.past_last, more + jump.times * (jump.past_last - jump.first)
        late, skipped = late + jump.times * jump.seconds, skipped + jump.times * jump.microbatches
    tell(told, len(spans), more, late, skipped)
    return made
