"""Outer periods with faults: slow devices, weak and flapping links by seed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from sim.engine import faults as kinds
from sim.engine.faults import NO_FAULTS, Faults, draw
from sim.islands.outer_period import simulate
from sim.islands.prediction import inner_steps, timing
from sim.plan.islands import IslandsPlan
from sim.units import Seconds, time_text

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

    def __repr__(self) -> str:
        mean, free = time_text(self.mean_s), time_text(self.fault_free_s)
        return f"{len(self.seeds)} outer periods with faults ({self.faults}): fault-free {free}, mean {mean}"

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
