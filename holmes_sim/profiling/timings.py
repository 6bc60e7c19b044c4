"""Repeated timings of the same work."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from sim.units import Seconds


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds of each repetition."""

    seconds: tuple[Seconds, ...]

    @classmethod
    def of(cls, seconds: Iterable[Seconds]) -> Timings:
        """Timings from an iterable of at least one value."""
        return cls(tuple(seconds))

    @property
    def median(self) -> Seconds:
        """Median of the repetitions."""
        return statistics.median(self.seconds)

    @property
    def minimum(self) -> Seconds:
        """The fastest repetition: the time on an undisturbed device."""
        return min(self.seconds)

    @property
    def relative_spread(self) -> float:
        """Half the interquartile range, divided by the median; 0 for fewer than two repetitions."""
        if len(self.seconds) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return (high - low) / 2 / self.median
