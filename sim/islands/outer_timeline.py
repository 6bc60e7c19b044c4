"""Outer periods as data: what a simulation of them needs, and what it returns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from sim.islands.exchange import ExchangeCost
from sim.network.paths import LinkName
from sim.units import Bytes, Seconds

NETWORK = -1
"""Number of the network between the islands, in place of an island, in spans."""


class OuterSpan(NamedTuple):
    """What an island does from `start` to `end`: "inner steps" (`steps` of them), "wait" for slower islands, "exchange", where
    it waits for one, or "join", where it waits for an island that joins. Island `NETWORK` is the network between islands, on
    which an "exchange" is under way."""

    island: int
    kind: str
    start: Seconds
    end: Seconds
    steps: int = 0


class Absence(NamedTuple):
    """An island that leaves at `left` seconds (from the start if 0) and is ready to come back at `back`."""

    island: int
    left: Seconds
    back: Seconds = math.inf


class Checkpoint(NamedTuple):
    """The live checkpoint that island `source` sends to one that joins: its bytes, the links that each byte uses, over their
    efficiency, and the latency."""

    source: int
    payload: Bytes
    use: tuple[tuple[LinkName, float], ...]
    latency: Seconds


class Mesh(Protocol):
    """What changes of the membership cost (`sim.islands.mesh`). `links`: all links that islands may send over."""

    links: tuple[LinkName, ...]

    def exchange(self, present: Set[int]) -> ExchangeCost:
        """Cost of an exchange among the islands present."""
        ...

    def rebuild_s(self, islands: int) -> Seconds:
        """Seconds in which so many islands rebuild their ring."""
        ...

    def checkpoint(self, joiner: int, present: Set[int]) -> Checkpoint:
        """The live checkpoint for an island that joins those present."""
        ...


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds that a simulation needs.

    inner     seconds of an inner step of each island
    beside    the same while an exchange is on the network
    cost      cost of an exchange of all islands
    mesh      costs of changes of the membership; needed where islands are absent
    weak      share of its rate that a link keeps, where it is not 1
    outages   link -> intervals in which it carries nothing, as (from, until)"""

    inner: tuple[Seconds, ...]
    beside: tuple[Seconds, ...]
    cost: ExchangeCost
    mesh: Mesh | None = None
    weak: Mapping[LinkName, float] = field(default_factory=dict)
    outages: Mapping[LinkName, tuple[tuple[Seconds, Seconds], ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OuterTimeline:
    """Simulated outer periods: ends[island] are the ends of the periods that an island completed, in order, `completed` their
    number; the row of one that is absent lacks those of its absence. Of folded periods only the last ones are in `ends`."""

    ends: tuple[tuple[Seconds, ...], ...]
    spans: tuple[OuterSpan, ...]
    events: int
    completed: tuple[int, ...] = ()

    def period_s(self, island: int) -> Seconds:
        """Seconds of the last simulated period of an island."""
        ended = min((len(row) for row in self.ends if row), default=0)
        own = (0.0, *self.ends[island][: ended or None])
        return own[-1] - own[-2]
