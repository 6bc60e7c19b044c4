"""Copies of the spans of a period, made when they are read: a long steady state has millions, most readers need their sums.

A copy is a function of its original, of its number, and of the span that it comes after, whose end is one addition. So no copy
depends on the copies before it, and any of them can be made alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple, TypeAlias, overload

from sim.engine.parts import Indices, Parts
from sim.engine.timeline import Span
from sim.units import Seconds

Name: TypeAlias = tuple[str, int, str | None]
"""Name of a span in parts: text before its microbatch, the microbatch, text after it (None: the name has no microbatch)."""


@dataclass(frozen=True, slots=True)
class Jump:
    """An extrapolation: the spans of a component from its span number `first` on are repeated `times` times.

    Each repetition is `seconds` and `microbatches` later than the one before."""

    first: int
    times: int
    seconds: Seconds
    microbatches: int


class Original(NamedTuple):
    """A span that is copied. It comes after the span that is `back` spans of its component before it; 0: after none of them."""

    span: Span
    name: Name
    back: int


@dataclass(frozen=True, slots=True)
class Copies(Sequence[Span]):
    """All copies of a jump, in order; they are the spans of the timeline from index `begin` on.

    `earlier`: spans of the component before the first copy that a copy comes after, as (index, end), by their distance from the
    first copy (-1: just before it)."""

    period: tuple[Original, ...]
    jump: Jump
    begin: int
    earlier: Mapping[int, tuple[int, Seconds]]

    def __len__(self) -> int:
        return self.jump.times * len(self.period)

    @overload
    def __getitem__(self, index: int) -> Span: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Span, ...]: ...
    def __getitem__(self, index: int | slice) -> Span | tuple[Span, ...]:
        numbers = range(len(self))[index]
        return self._copy(numbers) if isinstance(numbers, int) else tuple(map(self._copy, numbers))

    def __iter__(self) -> Iterator[Span]:
        return map(self._copy, range(len(self)))

    @property
    def last(self) -> tuple[Span, ...]:
        """Copies of the last repetition; no copy of the same original ends later."""
        return self[-len(self.period) :]

    def totals(self) -> Iterator[tuple[Span, Seconds]]:
        """Every original, and the seconds of all its copies together."""
        jump, period = self.jump, len(self.period)
        for place, (span, _, back) in enumerate(self.period):
            special = range(place, len(self), period)[: len(_before_first(place, back, period, jump.times))]
            seconds = span.seconds
            if back:
                periods, previous = divmod(place - back, period)
                seconds = span.end - self.period[previous].span.end - periods * jump.seconds
            yield span, sum(self._copy(number).seconds for number in special) + (jump.times - len(special)) * seconds

    def _copy(self, number: int) -> Span:
        """A copy by its number, from 0."""
        before, place = divmod(number, len(self.period))
        (rank, lane, _, kind, start, end, stage, microbatch, group, after), (head, first, tail), back = self.period[place]
        late, skipped = (before + 1) * self.jump.seconds, (before + 1) * self.jump.microbatches
        after, start = self._own(number - back) if back else (after, start + late)
        name = head if tail is None else f"{head}{first + skipped}{tail}"
        microbatch = microbatch + skipped if stage >= 0 else -1
        return Span(rank, lane, name, kind, start, end + late, stage, microbatch, group, after)

    def _own(self, number: int) -> tuple[int, Seconds]:
        """Index and end of a span of the component: a copy by its number, or below 0 a span before the first copy."""
        if number < 0:
            return self.earlier[number]
        before, place = divmod(number, len(self.period))
        return self.begin + number, self.period[place].span.end + (before + 1) * self.jump.seconds


def copies(spans: Parts[Span], own: Indices, names: Mapping[int, Name], jump: Jump) -> Copies:
    """The copies of a jump, at the end of the spans of a run; `own` are the indices of the spans of its component.

    If the original came after the span that is n own spans before it (`back`), the copy comes after the span that is n own
    spans before the copy. If the original came after a span of another component, or after none, so does the copy."""
    period = []
    for position in range(jump.first, len(own)):
        index = own[position]
        found = own.find(spans[index].after)
        period.append(Original(spans[index], names[index], position - found if found >= 0 else 0))
    distances = (_before_first(place, one.back, len(period), jump.times) for place, one in enumerate(period))
    earlier = {distance: (own[distance], spans[own[distance]].end) for distance in chain.from_iterable(distances)}
    return Copies(tuple(period), jump, len(spans), earlier)


def _before_first(place: int, back: int, period: int, times: int) -> range:
    """Distances from the first copy, below 0, of the spans before it that copies of an original come after."""
    return range(place - back, min(0, place - back + times * period), period) if back else range(0)


class ExtrapolatedSpans(Sequence[Span]):
    """The spans of a timeline, some of which are copies. When a span is read, all copies are made, and kept.

    It equals the tuple of its spans."""

    def __init__(self, parts: tuple[tuple[Span, ...] | Copies, ...]):
        self.parts = parts

    @cached_property
    def _all(self) -> tuple[Span, ...]:
        return tuple(chain.from_iterable(self.parts))

    @overload
    def __getitem__(self, index: int) -> Span: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Span, ...]: ...
    def __getitem__(self, index: int | slice) -> Span | tuple[Span, ...]:
        return self._all[index]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __iter__(self) -> Iterator[Span]:
        return iter(self._all)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ExtrapolatedSpans):
            return self.parts == other.parts or self._all == other._all
        return self._all == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._all)

    def __repr__(self) -> str:
        return repr(self._all)

    def __reduce__(self) -> tuple[type[ExtrapolatedSpans], tuple[object]]:
        return ExtrapolatedSpans, (self.parts,)


def frozen(spans: Parts[Span]) -> Sequence[Span]:
    """The spans of a run that has ended: a tuple, if there are no copies."""
    every = [part if isinstance(part, Copies) else tuple(part) for part in (*spans.parts, spans.tail) if part]
    return ExtrapolatedSpans(tuple(every)) if any(isinstance(part, Copies) for part in every) else tuple(spans)


def latest(spans: Parts[Span]) -> Iterator[Span]:
    """The spans of a run without those copies that end no later than another copy of the same original."""
    return chain.from_iterable(part.last if isinstance(part, Copies) else part for part in (*spans.parts, spans.tail))


def totals(spans: Sequence[Span]) -> Iterator[tuple[Span, Seconds]]:
    """Spans with their seconds; the copies of a span are one, with the seconds of all. No copy is made for it."""
    for part in spans.parts if isinstance(spans, ExtrapolatedSpans) else (spans,):
        yield from part.totals() if isinstance(part, Copies) else ((span, span.seconds) for span in part)
