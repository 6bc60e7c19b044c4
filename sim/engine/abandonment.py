"""Abandonment: a simulation ends as soon as it is proved that its step takes longer than a limit.

A rank that begins a piece of its program proves that the step ends no earlier than now plus the remaining time of the piece on
an idle network (`sim.engine.remaining_time`). The check is one addition for each piece."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from sim.engine.state import Rank
from sim.units import Seconds

ROUNDING = 1e-9
"""Relative difference by which the step must be proved to exceed the limit: far above the rounding of sums of times."""

BEGIN = 1 / 16
"""Fraction of all pieces after whose simulation the remaining times are computed, which takes about 3 % of the time of a full
simulation. A smaller one costs more where a steady state is found soon, a larger one abandons later. A guess."""


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A simulation that was abandoned after some `events`: the step takes longer than `limit_s`, which was given.

    `estimate_s` estimates the step and is no bound: the delay against an idle network is extrapolated to the whole step."""

    limit_s: Seconds
    estimate_s: Seconds
    events: int = 0


class Abandonment:
    """Checks one simulation; `found` is the proof, None as long as there is none.

    `compute` gives the remaining times by class of ranks. It is called once, and only where the simulation is long enough."""

    def __init__(self, limit: Seconds, ranks: list[Rank], compute: Callable[[], list[list[Seconds]]]):
        self.limit, self.ranks, self.compute = limit, ranks, compute
        self.found: Abandoned | None = None
        self._until_begin = math.ceil(BEGIN * sum(len(rank.program) for rank in ranks)) if limit < math.inf else -1
        self._remaining: list[list[Seconds]] = []

    def check(self, rank: Rank, now: Seconds) -> None:
        """Check whether the step is proved to be too long, when a rank begins a piece."""
        if self._remaining:
            left = self._remaining[rank.index][rank.piece]
            if now + left > self.limit * (1 + ROUNDING):
                self.found = Abandoned(self.limit, self._estimate(now, left))
            return
        self._until_begin -= 1
        if self._until_begin == 0:
            self._remaining = self.compute()

    def _estimate(self, now: Seconds, left: Seconds) -> Seconds:
        """Estimated seconds of the step: at `now`, all but `left` seconds of the idle step were done."""
        idle = max(times[0] for times in self._remaining)
        return max(now * idle / (idle - left) if left < idle else 0.0, now + left)
