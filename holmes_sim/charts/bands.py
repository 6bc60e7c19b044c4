"""Bands of a row whose bars would be too thin to see: in each window of the step, the share of time of each kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Interval = tuple[float, float, str]
"""Begin and end in seconds, and the kind."""


def visible(intervals: Iterable[Interval], order: Sequence[str]) -> list[Interval]:
    """Intervals that do not overlap: where some do, the kind that is last in `order` covers the others."""
    events = sorted((moment, step, kind) for begin, end, kind in intervals for moment, step in ((begin, 1), (end, -1)))
    active, found, since = dict.fromkeys(order, 0), list[Interval](), 0.0
    for moment, step, kind in events:
        top = next((name for name in reversed(order) if active[name]), None)
        if top is not None and moment > since:
            found.append((since, moment, top))
        active[kind] += step
        since = moment
    return found


def shares(intervals: Iterable[Interval], end: float, windows: int) -> dict[str, list[float]]:
    """Kind -> the share that its intervals, which do not overlap, take of each of `windows` equal parts of `end` seconds."""
    width = end / windows
    found: dict[str, list[float]] = {}
    for begin, until, kind in intervals:
        first, last = int(begin / width), min(int(until / width), windows - 1)
        of = found.setdefault(kind, [0.0] * windows)
        for window in range(min(first, windows - 1), last + 1):
            of[window] += max(min(until, (window + 1) * width) - max(begin, window * width), 0.0) / width
    return found
