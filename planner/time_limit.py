"""The time limit of a request: a safeguard on top of budgets of counted work.

A search that ends by its budgets gives the same answer on every machine. One that the time limit ends does not: how far it came
depends on the speed of the machine. So everything that stops early asks a `TimeLimit`, which records that it did.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

SOON = 5.0
"""Seconds that a quick strategy has in any case (a guess). A larger value may exceed the request's time limit further."""


@dataclass(slots=True)
class TimeLimit:
    """A time limit that begins when the object is made. `seconds` may be infinite.

    `reached`: something stopped, or was left out, because the time was up."""

    seconds: float
    reached: bool = False
    _end: float = field(init=False)

    def __post_init__(self) -> None:
        self._end = time.monotonic() + self.seconds

    @property
    def seconds_left(self) -> float:
        """Seconds until the limit; negative after it."""
        return self._end - time.monotonic()

    def is_up(self) -> bool:
        """Whether the time is up. The caller then stops, which `reached` records."""
        return not self.leaves(0.0)

    def leaves(self, seconds: float) -> bool:
        """Whether so many seconds are left. If not, the caller leaves its work out, which `reached` records."""
        if self.seconds_left > max(seconds, 0.0):
            return True
        self.reached = True
        return False

    def reserve(self, seconds: float) -> None:
        """Bring the limit closer by some seconds, for work that follows the search."""
        self._end -= seconds

    @contextmanager
    def sooner(self, seconds: float) -> Iterator[None]:
        """Within a `with` statement, the limit is some seconds earlier, for work that follows."""
        self.reserve(seconds)
        try:
            yield
        finally:
            self.reserve(-seconds)

    def at_least(self, seconds: float) -> TimeLimit:
        """A limit of its own, of the seconds that are left and no fewer than `seconds`; add its `reached` to this one's."""
        return TimeLimit(max(self.seconds_left, seconds))
