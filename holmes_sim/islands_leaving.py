"""One island that leaves at a given time, and comes back where that is said: what the others lose, and how fast they go on."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from sim import units
from sim.errors import OptionError
from sim.islands.elastic import SteadyPeriods
from sim.islands.mesh import ElasticMesh
from sim.islands.outer_period import MANY, SAME, simulate
from sim.islands.outer_timeline import Absence, OuterTimeline, Timing
from sim.islands.prediction import prediction_of, timing
from sim.plan.islands import IslandsPlan
from sim.units import Bytes, Seconds

PERIODS = 3
"""Outer periods that are simulated before and after a leave; the last one counts."""


@dataclass(frozen=True, slots=True)
class Back:
    """An island that is back `away` seconds after it left. Island `source` sends it a live checkpoint of `checkpoint` bytes,
    for which the others wait `waited` seconds, the rebuilt ring included."""

    away: Seconds
    source: int
    checkpoint: Bytes
    waited: Seconds

    def facts(self) -> dict[str, Any]:
        """The result as plain data."""
        return {"away_s": self.away, "source": self.source, "checkpoint_bytes": self.checkpoint, "waited_s": self.waited}


@dataclass(frozen=True, slots=True)
class Left:
    """An island that left at `at` seconds. `waited`: seconds that the others lost, against periods of their own; tokens per
    second before and after. `back`: its return, if it comes back."""

    island: int
    at: Seconds
    timeline: OuterTimeline
    before: float
    after: float
    waited: Seconds
    back: Back | None = None

    def facts(self) -> dict[str, Any]:
        """The result as plain data."""
        return {
            "island": self.island,
            "at_s": self.at,
            "waited_s": self.waited,
            "tokens_per_s": {"before": self.before, "after": self.after},
            "back": self.back.facts() if self.back is not None else None,
        }


def without_island(plan: IslandsPlan, leaves: str) -> Left:
    """Simulate an island that leaves: "1@2h" is island 1 after two hours, "1@2h:30min" that it comes back 30 minutes later.

    Raises OptionError."""
    island, seconds, away = _parsed(plan, leaves)
    mesh = ElasticMesh(plan)
    usual = replace(timing(plan), mesh=mesh)
    before = prediction_of(plan, usual, simulate(plan, usual))
    others = frozenset(range(len(plan.islands))) - {island}
    after = SteadyPeriods(plan, usual, mesh).of(others)
    whole_before = max(int(seconds / before.period_s) - PERIODS, 0)  # periods are alike: so many are not simulated
    at_s = max(seconds - whole_before * before.period_s, math.ulp(0.0))
    timeline = simulate(plan, usual, (Absence(island, at_s),), 2 * PERIODS + 1)
    ends = max((timeline.ends[index] for index in others), key=lambda row: row[-1])
    whole = len([end for end in ends if end <= at_s])
    waited = ends[-1] - _expected(ends, whole, before.period_s, after.period)
    waited = waited if waited > SAME * after.period else 0.0
    back = _back(plan, usual, Absence(island, at_s, at_s + away), mesh) if away is not None else None
    return Left(island, seconds, timeline, before.tokens_per_s, after.rate, waited, back)


def _parsed(plan: IslandsPlan, text: str) -> tuple[int, Seconds, Seconds | None]:
    """(island, seconds at which it leaves, seconds away if it comes back) from text. Raises OptionError."""
    number, _, times = text.partition("@")
    left, comes_back, away = times.partition(":")
    last = len(plan.islands) - 1
    try:
        island, seconds = int(number), units.parse(left, "time")
        gone = units.parse(away, "time") if comes_back else None
    except ValueError:
        raise OptionError(
            f"--leave {text!r}: write the island and when it leaves, such as {last}@2h, with the time away if it comes back, "
            f"such as {last}@2h:30min; or how often islands or nodes leave, and their time away, such as island:100h:2h"
        ) from None
    if not 0 <= island <= last:
        raise OptionError(f"--leave {text!r}: the plan has no island {island}; its islands are 0 to {last}")
    return island, seconds, gone


def _expected(ends: tuple[Seconds, ...], whole: int, before: Seconds, after: Seconds) -> Seconds:
    """End of the last period if the one in which the island left had been as short as those after it."""
    return (ends[whole - 1] if whole else 0.0) + min(before, after) * (len(ends) - whole)


def _back(plan: IslandsPlan, usual: Timing, absence: Absence, mesh: ElasticMesh) -> Back:
    """Simulate the return of an island."""
    others = frozenset(range(len(plan.islands))) - {absence.island}
    sent = mesh.checkpoint(absence.island, others)
    period = max(row[-1] / len(row) for row in simulate(plan, usual).ends)
    until = absence.back + mesh.seconds(sent) + mesh.rebuild_s(len(plan.islands)) + 2 * PERIODS * period
    timeline = simulate(plan, usual, (absence,), MANY, until)
    waits = [[s.end - s.start for s in timeline.spans if s.island == index and s.kind == "join"] for index in others]
    return Back(absence.back - absence.left, sent.source, sent.payload, max(map(math.fsum, waits)))
