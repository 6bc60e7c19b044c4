"""Islands that leave and come back again and again: expected tokens per second, the same simulated by seed, and what one
synchronous run of the same devices would give.

The others go on with fewer islands (`sim.islands.membership`). A failure is a leave that lasts a restart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sim.errors import OptionError
from sim.islands import leaving as leaves
from sim.islands.elastic import ElasticRate, expected
from sim.islands.leaving import Leave, Leaving
from sim.islands.mesh import ElasticMesh, checkpoint_bytes
from sim.islands.outer_period import MANY, simulate
from sim.islands.prediction import timing
from sim.plan.islands import IslandsPlan
from sim.results import goodput as runs
from sim.results.goodput import DAY, Run
from sim.units import Bytes, Seconds

SEEDS = 40
"""Number of simulated runs where it is not given. A guess."""
PERIODS = 10_000
"""Outer periods that all these runs may have together where exchanges run beside inner steps, so that periods are not folded:
about 10 s for two islands. There are fewer seeds then, and with `LEAST_SEEDS` of them shorter runs. A guess."""
LEAST_SEEDS = 4


@dataclass(frozen=True, slots=True)
class ElasticIslands:
    """Islands that leave and come back.

    leaving       how each island leaves, failures included
    checkpoints   seconds of the live checkpoint for each island on an idle network, with all others present
    rate          expected tokens per second, and what is lost
    simulated     useful tokens per second of each seed, over `days`
    together      one synchronous run of the same devices, which stops until all are back; None without checkpoints"""

    plan: IslandsPlan
    leaves: tuple[Leave, ...]
    leaving: tuple[Leaving, ...]
    checkpoint: Bytes
    checkpoints: tuple[Seconds, ...]
    rate: ElasticRate
    days: float
    simulated: tuple[float, ...]
    together: Run | None

    @property
    def mean(self) -> float:
        """Mean useful tokens per second of the simulated runs."""
        return math.fsum(self.simulated) / len(self.simulated)

    def facts(self) -> dict[str, Any]:
        """The result as plain data."""
        rate, three = self.rate, zip(self.leaving, self.checkpoints, strict=True)
        return {
            "leaves": [{"kind": leave.kind, "every_s": leave.every, "away_s": leave.away} for leave in self.leaves],
            "islands": [
                {"leaves_every_s": one.every, "away_s": one.away, "present": one.present, "checkpoint_s": seconds}
                for one, seconds in three
            ],
            "checkpoint_bytes": self.checkpoint,
            "goodput": rate.goodput,
            "tokens_per_s": {
                "never_leaving": rate.full,
                "useful": rate.useful,
                "lost_away": rate.away,
                "lost_by_leaves": rate.leaves,
                "lost_by_returns": rate.returns,
            },
            "simulated": {
                "days": self.days,
                "seeds": len(self.simulated),
                "tokens_per_s": self.mean,
                "least": min(self.simulated),
                "most": max(self.simulated),
            },
            "synchronous_goodput": self.together.goodput if self.together is not None else None,
        }


@dataclass(frozen=True, slots=True)
class Failures:
    """Failures beside leaves: the run of each island and that of all devices together (`holmes_sim.islands_goodput`)."""

    islands: tuple[Run, ...]
    together: Run


def elastic_islands(
    plan: IslandsPlan,
    leave: Iterable[str],
    failures: Failures | None = None,
    days: float = 30.0,
    seeds: Iterable[int] | None = None,
) -> ElasticIslands:
    """Islands of a plan that leave and come back: texts such as "island:100h:2h" (kind, mean time between leaves of one, mean
    time away). `days` and `seeds`: length and number of the simulated runs. Raises OptionError."""
    parsed = tuple(map(leaves.parse, leave))
    if not plan.sync.exchanges:
        raise OptionError(f"--leave: sync {plan.sync}: islands that exchange nothing do not notice that one leaves")
    nodes = [runs.counts(island)["node"] for island in plan.islands]
    rates = [run.rates for run in failures.islands] if failures is not None else [{} for _ in nodes]
    restart = failures.together.restart if failures is not None else 0.0
    how = leaves.of_islands(parsed, nodes, rates, restart)
    mesh, usual = ElasticMesh(plan), timing(plan)
    everyone = frozenset(range(len(plan.islands)))
    checkpoints = tuple(mesh.seconds(mesh.checkpoint(island, everyone - {island})) for island in sorted(everyone))
    rate = expected(plan, usual, mesh, how)
    whole, every = (days * DAY, seeds) if seeds is not None else _affordable(plan, days * DAY, rate.full)
    usual, found = replace(usual, mesh=mesh), list[float]()
    for seed in every:
        periods = simulate(plan, usual, leaves.drawn(how, whole, seed), MANY, whole).completed
        tokens = sum(count * island.workload.tokens for count, island in zip(periods, plan.islands, strict=True))
        found.append(plan.sync.inner_steps * tokens / whole)
    together = _synchronous(failures.together, parsed, nodes) if failures is not None else None
    return ElasticIslands(plan, parsed, how, checkpoint_bytes(plan), checkpoints, rate, whole / DAY, tuple(found), together)


def _affordable(plan: IslandsPlan, whole: Seconds, rate: float) -> tuple[Seconds, range]:
    """(seconds of a run, seeds) that there is time for."""
    if not any(exchange.overlap for exchange in plan.sync.exchanges):
        return whole, range(SEEDS)
    period = plan.workload.tokens * plan.sync.inner_steps / rate
    seeds = max(min(SEEDS, int(PERIODS * period / whole)), LEAST_SEEDS)
    return min(whole, PERIODS / seeds * period), range(seeds)


def _synchronous(failing: Run, parsed: Sequence[Leave], nodes: Sequence[int]) -> Run:
    """One synchronous run that a leave stops until a restart after the return.

    Daly's cost function has exp(R / M) for a restart of R seconds, the inverse of the probability that no failure interrupts
    it. With restarts of unlike length that is 1 / E[exp(-R / M)]; an exponential time away of mean A gives 1 / (1 + A / M)."""
    count = {"island": len(nodes), "node": sum(nodes)}
    rates = [(rate, 0.0) for rate in failing.rates.values()]
    rates += [(count[leave.kind] / leave.every, leave.away) for leave in parsed]
    total = sum(rate for rate, _ in rates)
    survives = sum(rate / total * math.exp(-failing.restart * total) / (1 + away * total) for rate, away in rates)
    restart = -math.log(survives) / total if survives > 0 else math.inf
    interval = runs.daly(failing.checkpoint, 1 / total)
    return Run({"all": 1}, {"all": 1 / total}, failing.checkpoint, restart, interval)
