"""How often islands leave and how long they are away: parsed from text, and drawn by seed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from sim import units
from sim.errors import OptionError
from sim.islands.outer_timeline import Absence
from sim.units import Seconds

KINDS = ("island", "node")


class Leave(NamedTuple):
    """`kind` ("island", or "node", with which its island leaves), mean seconds between leaves of one, and mean seconds away."""

    kind: str
    every: Seconds
    away: Seconds


@dataclass(frozen=True, slots=True)
class Leaving:
    """Mean seconds that an island is present between two leaves, and mean seconds away; both are drawn as exponential times."""

    every: Seconds
    away: Seconds

    @property
    def present(self) -> float:
        """Share of the time in which it is present, in the long run."""
        return self.every / (self.every + self.away) if math.isfinite(self.every) else 1.0

    @property
    def rate(self) -> float:
        """Leaves per second, in the long run; it comes back as often."""
        return 1 / (self.every + self.away)


def parse(text: str) -> Leave:
    """A leave from text such as `island:100h:2h`. Raises OptionError."""
    kind, _, times = text.partition(":")
    every, _, away = times.partition(":")
    try:
        found = Leave(kind.strip(), units.parse(every, "time"), units.parse(away, "time"))
    except ValueError:
        found = Leave("", 0.0, 0.0)
    if found.kind not in KINDS or found.every <= 0 or found.away < 0:
        raise OptionError(
            f"--leave {text!r} is not island or node, the mean time between leaves of one and the mean time away; write for "
            "example island:100h:2h"
        )
    return found


def combined(events: Iterable[tuple[float, Seconds]]) -> Leaving:
    """One kind of leave from several, as (leaves per second while present, mean seconds away): their rates add up."""
    rates, away = 0.0, 0.0
    for rate, seconds in events:
        rates, away = rates + rate, away + rate * seconds
    return Leaving(1 / rates, away / rates) if rates else Leaving(math.inf, 0.0)


def of_islands(
    leaves: Sequence[Leave], nodes: Sequence[int], failures: Iterable[Mapping[str, float]], restart: Seconds
) -> tuple[Leaving, ...]:
    """How each island leaves: by itself, with one of its nodes, and where something of it fails, after which it is away for a
    restart. `failures`: failures per second of the components of each island, by kind."""
    found = []
    for count, rates in zip(nodes, failures, strict=True):
        events = [((count if leave.kind == "node" else 1) / leave.every, leave.away) for leave in leaves]
        found.append(combined([*events, *((rate, restart) for rate in rates.values())]))
    return tuple(found)


def drawn(leaving: Sequence[Leaving], horizon: Seconds, seed: int) -> tuple[Absence, ...]:
    """Absences of all islands within `horizon` seconds, from the long-run state on. The same seed gives the same ones."""
    found = []
    for island, one in enumerate(leaving):
        if not math.isfinite(one.every):
            continue
        random, now = Random(f"{seed} island {island} leaves"), 0.0
        if random.random() >= one.present:
            now = random.expovariate(1 / one.away)
            found.append(Absence(island, 0.0, now))
        while True:
            left = now + random.expovariate(1 / one.every)
            if left >= horizon:
                break
            now = left + (random.expovariate(1 / one.away) if one.away else 0.0)
            found.append(Absence(island, left, now))
    return tuple(found)
