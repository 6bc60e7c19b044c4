"""The work of one search: what it did how often and for how long, and what became of the layouts."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from sim.units import Seconds

Activity: TypeAlias = Literal[
    "estimates", "bounds", "pipelines priced", "plans simulated", "programmes solved", "mixed stages", "other strategies"
]
Level: TypeAlias = Literal["base", "schedule", "variant"]
"""Kinds of layouts, as `planner.search.branch_and_bound` branches on them."""
Outcome: TypeAlias = Literal["opened", "no memory", "quick bound", "deadline test", "dominated", "evaluated", "left open"]
"""What became of a layout: opened, dismissed by its memory or a bound, settled by evaluation, or left when the search ended."""


@dataclass(slots=True)
class Effort:
    """Counts of work. `times` counts pipelines, plans and programmes; `seconds` is wall time by activity, in which an activity
    inside another one counts for itself only; `layouts` counts layouts by level and outcome."""

    times: Counter[Activity] = field(default_factory=Counter)
    seconds: defaultdict[Activity, Seconds] = field(default_factory=lambda: defaultdict(float))
    layouts: Counter[tuple[Level, Outcome]] = field(default_factory=Counter)
    _inner: list[Seconds] = field(default_factory=lambda: [0.0])

    @contextmanager
    def spent(self, activity: Activity, times: int = 0) -> Iterator[None]:
        """Count the work of a block."""
        begun = time.perf_counter()
        self._inner.append(0.0)
        try:
            yield
        finally:
            whole = time.perf_counter() - begun
            self.times[activity] += times
            self.seconds[activity] += whole - self._inner.pop()
            self._inner[-1] += whole
