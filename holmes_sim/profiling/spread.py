"""A quantity measured several times."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from sim.units import Seconds


@dataclass(frozen=True, slots=True)
class Spread:
    """Seconds of the same work, each time it was done."""

    seconds: tuple[Seconds, ...]

    @classmethod
    def of(cls, seconds: Iterable[Seconds]) -> Spread:
        """What was measured; at least once."""
        return cls(tuple(seconds))

    @property
    def median(self) -> Seconds:
        """The middle one."""
        return statistics.median(self.seconds)

    @property
    def least(self) -> Seconds:
        """The quickest: what the device can do when nothing disturbs it."""
        return min(self.seconds)

    @property
    def share(self) -> float:
        """Half the interquartile range over the median; 0 of less than two."""
        if len(self.seconds) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return (high - low) / 2 / self.median
