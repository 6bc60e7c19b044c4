"""Copies of the spans of a period, made when they are read: a long steady state has millions, most readers need their sums.

A copy is a function of its original, of its number, and of the span that it comes after, whose end is one addition. So no copy
depends on the copies before it, and any of them can be made alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, product, starmap
from typing import NamedTuple, TypeAlias, overload

from sim.engine.parts import Indices, Parts
from sim.engine.timeline import Span
from sim.units import Seconds

Name: TypeAlias = tuple[str, int, str | None, int]
"""Name of a span in parts: text before its microbatch, the microbatch, text after it (None: the name has no microbatch), and
how many microbatches of its rank, or messages, the largest microbatch of any stage is (`sim.kernels.pass_messages.Rates`)."""


@dataclass(frozen=True, slots=True)
class Jump:
    """An extrapolation: the spans of a component from its span number `first` on are repeated `times` times.

    Each repetition is `seconds` and `microbatches` (of the largest size of any stage) later than the one before."""

    first: int
    times: int
    seconds: Seconds
    microbatches: int


class Original(NamedTuple):
    """A span that is copied. It comes after span number `previous` of the period, `periods` repetitions later (0 or below).

    `previous` is -1 where it comes after none, or after a span of another component."""

    span: Span
    name: Name
    previous: int
    periods: int


@dataclass(frozen=True, slots=True)
class Copies(Sequence[Span]):
    """All copies of a jump, in order; they are the spans of the timeline from index `begin` on.

    `earlier`: the spans of the component before the first copy that a copy comes after, as (index, end), by their number: the
    first copy has number 0, the span of the component before it -1."""

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
        if isinstance(index, slice):
            return tuple(self[number] for number in range(*index.indices(len(self))))
        return self._copy(*divmod(range(len(self))[index], len(self.period)))

    def __iter__(self) -> Iterator[Span]:
        return starmap(self._copy, product(range(self.jump.times), range(len(self.period))))

    @property
    def last(self) -> tuple[Span, ...]:
        """Copies of the last repetition; no copy of the same original ends later."""
        return self[-len(self.period) :]

    def totals(self) -> Iterator[tuple[Span, Seconds]]:
        """Every original, and the seconds of all its copies together."""
        times, seconds = self.jump.times, self.jump.seconds
        for place, (span, _, previous, periods) in enumerate(self.period):
            first = 0 if previous < 0 else min(-periods, times)  # these repetitions come after spans before the first copy
            each = span.seconds if previous < 0 else span.end - self.period[previous].span.end - periods * seconds
            yield span, sum(self._copy(repetition, place).seconds for repetition in range(first)) + (times - first) * each

    def _copy(self, repetition: int, place: int) -> Span:
        """The copy of span number `place` of the period in a repetition; both count from 0."""
        span, (head, first, tail, rate), previous, periods = self.period[place]
        rank, lane, _, kind, start, end, stage, microbatch, group, after = span
        late, skipped = (repetition + 1) * self.jump.seconds, (repetition + 1) * self.jump.microbatches * rate
        if previous < 0:
            start += late
        elif repetition + periods < 0:
            after, start = self.earlier[(repetition + periods) * len(self.period) + previous]
        else:
            after = self.begin + (repetition + periods) * len(self.period) + previous
            start = self.period[previous].span.end + (repetition + periods + 1) * self.jump.seconds
        name = head if tail is None else f"{head}{first + skipped}{tail}"
        microbatch = microbatch + skipped if stage >= 0 else -1
        return Span(rank, lane, name, kind, start, end + late, stage, microbatch, group, after)


def copies(spans: Parts[Span], own: Indices, names: Mapping[int, Name], jump: Jump) -> Copies:
    """The copies of a jump, at the end of the spans of a run; `own` are the indices of the spans of its component.

    If the original came after the span that is n own spans before it, the copy comes after the span that is n own spans before
    the copy. If the original came after a span of another component, or after none, so does the copy."""
    originals, earlier = own[jump.first :], dict[int, tuple[int, Seconds]]()
    period, length = list[Original](), len(originals)
    for index in originals:
        position = own.find(spans[index].after)
        periods, previous = divmod(position - jump.first, length) if position >= 0 else (0, -1)
        period.append(Original(spans[index], names[index], previous, periods))
        for repetition in range(min(-periods, jump.times)):
            number = (repetition + periods) * length + previous
            earlier[number] = own[number], spans[own[number]].end
    return Copies(tuple(period), jump, len(spans), earlier)


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
