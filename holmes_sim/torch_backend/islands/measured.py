"""Measured outer periods, as the ranks of a launch report them. This module does not need torch."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sim.units import Seconds


@dataclass(frozen=True, slots=True)
class RankTimes:
    """Seconds that one rank measured with its own clock, without the first outer period.

    periods     seconds of each outer period
    inner       mean seconds of an inner step, without waits for exchanges
    waited      mean seconds of an outer period in which it waited for exchanges or computed outer updates
    exchanges   mean seconds of the exchanges of one outer period, from the arrival of this rank
    losses      this rank's part of the loss of its island at each inner step, those of the first period included"""

    island: int
    periods: tuple[Seconds, ...]
    inner: Seconds
    waited: Seconds
    exchanges: Seconds
    losses: tuple[float, ...]
    device: str = ""

    def to_json(self) -> str:
        """The times as JSON text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> RankTimes:
        """Times from the text that `to_json` wrote."""
        data = json.loads(text)
        return cls(**data | {"periods": tuple(data["periods"]), "losses": tuple(data["losses"])})


@dataclass(frozen=True, slots=True)
class MeasuredPeriods:
    """Measured outer periods of all islands.

    periods_s       seconds of each outer period, of the slowest rank
    inner_step_s    seconds of an inner step of each island, without exchanges
    exchange_s      seconds of the exchanges of a period, as the island measures them that arrives last
    exposed_s       seconds of a period in which even the busiest island waits for exchanges or computes outer updates
    losses          loss of each inner step, the mean of the islands by their shares of the batch
    computed_on     names of the devices; empty with paced compute"""

    periods_s: tuple[Seconds, ...]
    inner_step_s: tuple[Seconds, ...]
    exchange_s: Seconds
    exposed_s: Seconds
    losses: tuple[float, ...]
    scale: float
    compute: str
    computed_on: tuple[str, ...]

    @property
    def period_s(self) -> Seconds:
        """The mean outer period."""
        return statistics.mean(self.periods_s)

    def to_json(self) -> str:
        """The periods as JSON text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> MeasuredPeriods:
        """Periods from the text that `to_json` wrote."""
        data: dict[str, Any] = json.loads(text)
        return cls(**data | {key: tuple(value) for key, value in data.items() if isinstance(value, list)})


def measured(ranks: Sequence[RankTimes], weights: Sequence[float], scale: float, compute: str) -> MeasuredPeriods:
    """The outer periods of a launch, from the times of all its ranks. `weights`: shares of the islands in the batch."""
    by_island = [[rank for rank in ranks if rank.island == island] for island in range(len(weights))]
    steps = zip(*([weights[rank.island] * loss for loss in rank.losses] for rank in ranks), strict=True)
    return MeasuredPeriods(
        periods_s=tuple(max(some) for some in zip(*(rank.periods for rank in ranks), strict=True)),
        inner_step_s=tuple(max(rank.inner for rank in own) for own in by_island),
        exchange_s=min(max(rank.exchanges for rank in own) for own in by_island),
        exposed_s=min(max(rank.waited for rank in own) for own in by_island),
        losses=tuple(sum(parts) for parts in steps),
        scale=scale,
        compute=compute,
        computed_on=tuple(sorted({rank.device for rank in ranks if rank.device})),
    )
