"""Improvements of a search while it runs, as plain data: for programs that show or use the best plan so far."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from planner.progress import Progress
from sim.units import Seconds

FORMAT = "holmes-sim/improvement/1"
DIGITS = 3
"""Decimals of the gap that count: a bound that rises by less is no improvement. With more, many lines say almost the same."""


class Improvements:
    """Calls `write` with the facts of each state that has a shorter step or a smaller gap than the one before.

    `begun`: `time.monotonic` at the start of the command."""

    def __init__(self, write: Callable[[dict[str, Any]], None], begun: Seconds):
        self._write, self._begun = write, begun
        self._last: tuple[float, float] | None = None

    def __call__(self, state: Progress) -> None:
        """Write the state if it is an improvement."""
        if state.step_s is None or state.gap is None:
            return
        now = state.step_s, round(state.gap, DIGITS)
        if self._last is None or now[0] < self._last[0] or now[1] < self._last[1]:
            self._last = now
            self._write(facts(state, time.monotonic() - self._begun))


def facts(state: Progress, seconds: Seconds) -> dict[str, Any]:
    """A state as plain data (format holmes-sim/improvement/1).

    The keys of its numbers are those of a plan's prediction and certificate; plans with mixed stages are bounded last, so the
    bound is that of the others.
    `seconds` since the start of the command; `activity`: what the search does."""
    bound = None if state.step_s is None else min(state.lower_bound_s, state.step_s)
    found = {"format": FORMAT, "seconds": seconds, "activity": state.activity, "step_s": state.step_s}
    return found | {"lower_bound_s": bound, "gap": state.gap}
