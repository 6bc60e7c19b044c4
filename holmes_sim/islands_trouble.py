"""Outer periods with faults: slow devices, weak and flapping links by seed, and an island that leaves."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from sim import units
from sim.engine import faults as kinds
from sim.engine.faults import NO_FAULTS, Faults, draw
from sim.errors import OptionError
from sim.islands.outer_period import SAME, OuterTimeline, simulate
from sim.islands.prediction import inner_steps, prediction_of, timing
from sim.plan.islands import IslandsPlan
from sim.units import Seconds

SEEDS = 40
"""Number of seeds where it is not given. A guess; the mean of a rare fault needs more."""
PERIODS = 3
"""Outer periods that are simulated for each seed; the last one counts."""


@dataclass(frozen=True, slots=True)
class IslandsTrouble:
    """Mean seconds of an outer period for each seed with `faults`, and without any (`fault_free_s`)."""

    faults: Faults
    fault_free_s: Seconds
    seeds: tuple[int, ...]
    periods_s: tuple[Seconds, ...]

    @property
    def mean_s(self) -> Seconds:
        """Mean over the seeds."""
        return math.fsum(self.periods_s) / len(self.periods_s)

    def quantile_s(self, share: float) -> Seconds:
        """The least period that at least a share of the seeds do not exceed."""
        return sorted(self.periods_s)[max(math.ceil(share * len(self.periods_s)), 1) - 1]

    def facts(self) -> dict[str, Any]:
        """The distribution as plain data."""
        return {
            "faults": str(self.faults),
            "fault_free_s": self.fault_free_s,
            "mean_s": self.mean_s,
            "p95_s": self.quantile_s(0.95),
            "slowest_s": max(self.periods_s),
            "seeds": len(self.seeds),
        }


@dataclass(frozen=True, slots=True)
class Left:
    """An island that left at `at` seconds. `waited`: seconds that the others lost, against periods of their own; tokens per
    second before and after."""

    island: int
    at: Seconds
    timeline: OuterTimeline
    before: float
    after: float
    waited: Seconds

    def facts(self) -> dict[str, Any]:
        """The result as plain data."""
        return {
            "island": self.island,
            "at_s": self.at,
            "waited_s": self.waited,
            "tokens_per_s": {"before": self.before, "after": self.after},
        }


def trouble_islands(
    plan: IslandsPlan,
    stragglers: str | None = None,
    degrade: str | None = None,
    flaps: str | None = None,
    seeds: Iterable[int] = range(SEEDS),
) -> IslandsTrouble:
    """Simulate outer periods with faults, drawn by seed for all machines of the fleet: slow devices lengthen inner steps, weak
    and flapping links inner steps and exchanges.

    Texts are those of `simulate`, such as "1%:1.5". Jitter of single actions is left out: it averages out over inner steps.
    Raises OptionError."""
    faults = Faults(
        kinds.stragglers(stragglers) if stragglers else None,
        0.0,
        kinds.degraded(degrade) if degrade else None,
        kinds.flaps(flaps) if flaps else None,
    )
    usual = timing(plan)
    free = max(simulate(plan, usual).period_s(island) for island in range(len(plan.islands)))
    known: dict[Any, tuple[Seconds, ...]] = {(): usual.inner}
    found, every = list[Seconds](), tuple(seeds)
    for seed in every:
        drawn = draw(faults, plan.fleet, seed, PERIODS * free / kinds.HORIZON)
        lasting = replace(drawn, down=())  # an outage is short beside a period, and long beside a step
        key = (lasting.slow, lasting.weak) if lasting.slow or lasting.weak else ()
        if key not in known:
            known[key] = inner_steps(plan, lasting if key else NO_FAULTS)
        troubled = replace(timing(plan, known[key]), weak=dict(drawn.weak), outages=dict(drawn.down))
        ends = simulate(plan, troubled, periods=PERIODS).ends
        found.append(max(row[PERIODS - 1] for row in ends) / PERIODS)
    return IslandsTrouble(faults, free, every, tuple(found))


def without_island(plan: IslandsPlan, leaves: str) -> Left:
    """Simulate an island that leaves, such as "1@2h": island 1 after two hours. Raises OptionError."""
    number, at, text = leaves.partition("@")
    try:
        island, seconds = int(number), units.parse(text, "time")
    except ValueError:
        island, seconds, at = -1, 0.0, ""
    if not at or not 0 <= island < len(plan.islands):
        raise OptionError(f"--leave {leaves!r}: write the island and when it leaves, such as {len(plan.islands) - 1}@2h")
    rest = tuple(one for index, one in enumerate(plan.islands) if index != island)
    usual = timing(plan)
    before = prediction_of(plan, usual, simulate(plan, usual))
    inner = tuple(one for index, one in enumerate(usual.inner) if index != island)
    if len(rest) > 1:
        smaller = replace(plan, islands=rest, prediction=None, certificate=None)
        alone = timing(smaller, inner)
        after = prediction_of(smaller, alone, simulate(smaller, alone))
        cost, tokens, period = alone.cost, after.tokens_per_s, after.period_s
    else:
        cost = replace(usual.cost, payload=0.0, use=())
        updates = sum(exchange.share for exchange in plan.sync.exchanges if not exchange.overlap) * cost.update
        period = plan.sync.inner_steps * inner[0] + updates
        tokens = rest[0].workload.tokens * plan.sync.inner_steps / period
    whole_before = max(int(seconds / before.period_s) - PERIODS, 0)  # periods are alike: so many are not simulated
    at_s = seconds - whole_before * before.period_s
    timeline = simulate(plan, replace(usual, without={island: cost}), (island, at_s), 2 * PERIODS + 1)
    ends = max((row for index, row in enumerate(timeline.ends) if index != island), key=lambda row: row[-1])
    whole = len([end for end in ends if end <= at_s])
    waited = ends[-1] - _expected(ends, whole, before.period_s, period)
    waited = waited if waited > SAME * period else 0.0
    return Left(island, seconds, timeline, before.tokens_per_s, tokens, waited)


def _expected(ends: tuple[Seconds, ...], whole: int, before: Seconds, after: Seconds) -> Seconds:
    """End of the last period if the one in which the island left had been as short as those after it."""
    return (ends[whole - 1] if whole else 0.0) + min(before, after) * (len(ends) - whole)
