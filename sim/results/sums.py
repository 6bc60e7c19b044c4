"""Sums of the seconds of a timeline by rank, without the copies that its steady state was extrapolated to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from sim.engine.copies import totals
from sim.engine.timeline import Timeline
from sim.units import Seconds

Sums: TypeAlias = Mapping[tuple[str, str, str], Seconds]
"""Seconds of the spans of one rank by (lane, kind, group)."""


def seconds_by_rank(timeline: Timeline) -> dict[int, Sums]:
    """Seconds of every representative rank. They differ from the sums over its spans by rounding only."""
    found: dict[int, dict[tuple[str, str, str], Seconds]] = {group[0]: {} for group in timeline.alike}
    for span, seconds in totals(timeline.spans):
        own, key = found[span.rank], (span.lane, span.kind, span.group)
        own[key] = own.get(key, 0.0) + seconds
    return dict(found)
