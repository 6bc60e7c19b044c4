"""Outer periods with faults: slow devices, weak and flapping links, and jitter, by seed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from sim.engine import faults as kinds
from sim.engine.faults import NO_FAULTS, DrawnFaults, Faults, draw, ports
from sim.islands.outer_period import simulate
from sim.islands.prediction import inner_steps, timing
from sim.network.paths import LinkName
from sim.plan.islands import IslandsPlan
from sim.units import Seconds, time_text

SEEDS = 40
"""Number of seeds where it is not given. A guess; the mean of a rare fault needs more."""
PERIODS = 3
"""Outer periods that are simulated for each seed; the last one counts."""
JITTERED = 8
"""Inner steps of each island that are simulated with jitter, to learn their mean and their spread (a guess: the noise of some
hundred actions is a small share of a step)."""


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
    jitter: str | None = None,
) -> IslandsTrouble:
    """Simulate outer periods with faults, drawn by seed for all machines of the fleet: slow devices lengthen inner steps, weak
    and flapping links inner steps and exchanges. Jitter is noise of each compute action, and of the rate of each link between
    clusters in the periods of a seed.

    Texts are those of `simulate`, such as "1%:1.5". Raises OptionError."""
    faults = Faults(
        kinds.stragglers(stragglers) if stragglers else None,
        kinds.jitter(jitter) if jitter else 0.0,
        kinds.degraded(degrade) if degrade else None,
        kinds.flaps(flaps) if flaps else None,
    )
    usual = timing(plan)
    free = max(simulate(plan, usual).period_s(island) for island in range(len(plan.islands)))
    known: dict[Any, tuple[Seconds, ...]] = {(): usual.inner}
    noises = _noises(plan, usual.inner, faults.jitter)
    found, every = list[Seconds](), tuple(seeds)
    for seed in every:
        drawn = draw(faults, plan.fleet, seed, PERIODS * free / kinds.HORIZON)
        lasting = replace(drawn, down=(), jitter=0.0, seed=0)  # an outage is short beside a period, and long beside a step
        key = (lasting.slow, lasting.weak) if lasting.slow or lasting.weak else ()
        if key not in known:
            known[key] = inner_steps(plan, lasting if key else NO_FAULTS)
        inner = tuple(own * noise for own, noise in zip(known[key], _noise_of(plan, noises, seed), strict=True))
        weak = _jittered_rates(plan, dict(drawn.weak), faults.jitter, seed)
        troubled = replace(timing(plan, inner), weak=weak, outages=dict(drawn.down))
        ends = simulate(plan, troubled, periods=PERIODS).ends
        found.append(max(row[PERIODS - 1] for row in ends) / PERIODS)
    return IslandsTrouble(faults, free, every, tuple(found))


def _noises(plan: IslandsPlan, usual: tuple[Seconds, ...], jitter: float) -> list[tuple[float, float]]:
    """(mean, standard deviation) of an inner step of each island with jitter, over its step without: steps in which ranks wait
    for the slowest are longer on average."""
    if not jitter:
        return [(1.0, 0.0)] * len(usual)
    steps = [inner_steps(plan, DrawnFaults(jitter=jitter, seed=seed)) for seed in range(JITTERED)]
    ratios = ([step[island] / own for step in steps] for island, own in enumerate(usual))
    return [(statistics.fmean(some), statistics.stdev(some)) for some in ratios]


def _noise_of(plan: IslandsPlan, noises: list[tuple[float, float]], seed: int) -> list[float]:
    """Factor on the inner steps of each island for a seed: the mean of the independent steps of a period."""
    random, steps = Random(f"{seed} jitter of inner steps"), plan.sync.inner_steps
    return [max(mean + spread / math.sqrt(steps) * random.gauss(0.0, 1.0), 0.0) for mean, spread in noises]


def _jittered_rates(plan: IslandsPlan, weak: dict[LinkName, float], jitter: float, seed: int) -> dict[LinkName, float]:
    """Shares of their rates that links keep: the seconds of what a trunk carries, in either direction, have a lognormal factor
    of mean 1."""
    if not jitter:
        return weak
    random, sigma = Random(f"{seed} jitter of trunks"), math.sqrt(math.log1p(jitter * jitter))
    found = dict(weak)
    for port in ports(plan.fleet):
        if port[0][0] == "trunk":
            factor = math.exp(random.gauss(-sigma * sigma / 2, sigma))
            found |= {link: found.get(link, 1.0) / factor for link in port}
    return found
