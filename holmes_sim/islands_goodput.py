"""Goodput of islands: what failures cost where an island that fails does not stop the others.

Each island is a run of its own (`sim.results.goodput`): a failure of its devices, nodes and links stops it alone, and after the
restart it takes the weights of the others at their next exchange, as in INTELLECT-1's elastic device mesh (arXiv 2412.01152,
section 2.4). So the exchange is its checkpoint: it loses at most an outer period, and no time for writing one. The goodput of
all is the mean over islands, weighted by their batches; that of one synchronous run of the same devices has the checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from holmes_sim.islands_elastic import ElasticIslands, Failures, elastic_islands
from sim.errors import OptionError
from sim.islands.prediction import predict
from sim.plan.islands import IslandsPlan
from sim.results import goodput as runs
from sim.results.goodput import Run
from sim.units import Seconds

FORMAT = "holmes-sim/islands-goodput/1"


@dataclass(frozen=True, slots=True)
class IslandsGoodput:
    """runs: the run of each island; together: one synchronous run of all their devices, with checkpoints. `tokens_per_s`:
    useful ones of all islands. elastic: the same with islands that leave and come back, where that is asked."""

    plan: IslandsPlan
    runs: tuple[Run, ...]
    together: Run
    tokens_per_s: float
    elastic: ElasticIslands | None = None

    def __repr__(self) -> str:
        return f"{self.plan.topology.name}: goodput of islands {self.goodput:.2%}, {self.tokens_per_s:,.0f} useful tokens/s"

    @property
    def goodput(self) -> float:
        """Fraction of the time that the islands spend on inner steps that no failure undoes, weighted by their batches."""
        return sum(weight * run.goodput for weight, run in zip(self.plan.weights, self.runs, strict=True))

    def facts(self) -> dict[str, Any]:
        """The result as plain data."""
        islands = [{"goodput": run.goodput, "mean_time_between_failures_s": run.between} for run in self.runs]
        return {
            "format": FORMAT,
            "goodput": self.goodput,
            "islands": islands,
            "synchronous_goodput": self.together.goodput,
            "tokens_per_s": self.tokens_per_s,
            "elastic": self.elastic.facts() if self.elastic is not None else None,
        }


def goodput_islands(
    plan: IslandsPlan,
    checkpoint: str,
    restart: str,
    fail: Iterable[str] = (),
    leave: Iterable[str] = (),
    days: float = 30.0,
    seeds: Iterable[int] | None = None,
) -> IslandsGoodput:
    """Goodput of a plan of islands, and of one synchronous run of the same devices whose checkpoints take `checkpoint` at
    Daly's interval. Texts as those of `holmes-sim goodput`; `leave`, `days` and `seeds` as those of `elastic_islands`. Raises
    OptionError where islands exchange nothing."""
    if not plan.sync.exchanges:
        raise OptionError(f"sync {plan.sync}: islands that exchange nothing are separate runs; give the plan of one of them")
    prediction = plan.prediction or predict(plan)[1]
    restarts, mtbf = runs.seconds("--restart", restart, "10min"), runs.mtbf(tuple(fail))
    saves: Seconds = runs.seconds("--checkpoint", checkpoint, "60s")
    islands = island_runs(plan.annotated(prediction), mtbf, restarts, saves)
    every = {kind: sum(run.counts[kind] for run in islands) for kind in islands[0].counts}
    together = Run(every, mtbf, saves, restarts, prediction.period_s)
    together = replace(together, interval=runs.daly(saves, together.between))
    found = IslandsGoodput(plan, islands, together, 0.0)
    asked = tuple(leave)
    elastic = elastic_islands(plan, asked, Failures(islands, together), days, seeds) if asked else None
    return replace(found, tokens_per_s=prediction.tokens_per_s * found.goodput, elastic=elastic)


def island_runs(plan: IslandsPlan, mtbf: Mapping[str, Seconds], restart: Seconds, saves: Seconds) -> tuple[Run, ...]:
    """The run of each island of a plan with a prediction: its exchanges are its checkpoints. Islands that exchange nothing have
    checkpoints of `saves` seconds at Daly's interval. Raises OptionError where nothing of an island fails."""
    assert plan.prediction is not None
    found = []
    for island in plan.islands:
        run = Run(runs.counts(island), mtbf, 0.0, restart, plan.prediction.period_s)
        if not run.rates:
            raise OptionError(f"--fail: an island uses no {' and no '.join(mtbf)}; give a kind that all use")
        alone = replace(run, checkpoint=saves, interval=runs.daly(saves, run.between))
        found.append(run if plan.sync.exchanges else alone)
    return tuple(found)
