"""A step in trouble, over many seeds: the distribution of its seconds, beside what the plan promises."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from sim import units
from sim.engine import faults as kinds
from sim.engine.engine import simulate
from sim.engine.faults import DrawnFaults, Faults, draw
from sim.engine.timeline import Timeline
from sim.errors import HolmesError
from sim.plan.plan import Plan
from sim.units import Seconds

if TYPE_CHECKING:
    import pandas as pd

FORMAT = "holmes-sim/trouble/1"
SHARES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True, repr=False)
class Troubled:
    """Seconds of a step for each seed; `plain_s` is the step without trouble, `played` how many different steps were played."""

    plan: Plan
    trouble: Faults
    plain_s: Seconds
    seeds: tuple[int, ...]
    steps_s: tuple[Seconds, ...]
    played: int
    seconds: Seconds
    interrupted: bool = False

    def __repr__(self) -> str:
        said = ", ".join(f"{name} {units.time_text(seconds)}" for name, seconds in self.summary().items())
        return f"{len(self.seeds):,} steps of {self.plan.topology.name} in trouble ({self.trouble}): {said}"

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{name}</th><td>{seconds:.4g} s</td></tr>" for name, seconds in self.summary().items())
        return f"<p>{escape(repr(self))}</p><table>{rows}</table>"

    @property
    def promised_s(self) -> Seconds:
        """What the plan promises; where it has no prediction, the plain step."""
        return self.plan.prediction.step_s if self.plan.prediction is not None else self.plain_s

    @property
    def mean_s(self) -> Seconds:
        """Mean of the steps."""
        return math.fsum(self.steps_s) / len(self.steps_s)

    def quantile_s(self, share: float) -> Seconds:
        """The least step that at least this share of the seeds does not exceed."""
        return sorted(self.steps_s)[max(math.ceil(share * len(self.steps_s)), 1) - 1]

    @property
    def slowest(self) -> int:
        """The seed of the longest step, the first of equal ones."""
        return self.seeds[self.steps_s.index(max(self.steps_s))]

    def drawn(self, seed: int) -> DrawnFaults:
        """What a seed drew."""
        return draw(self.trouble, self.plan.fleet, seed, self.plain_s)

    def timeline(self, seed: int) -> Timeline:
        """The step of a seed, played again."""
        return simulate(self.plan, drawn=self.drawn(seed))

    def summary(self) -> dict[str, Seconds]:
        """Seconds of the step by name: promised, plain, mean, quantiles, slowest."""
        quantiles = {name: self.quantile_s(share) for name, share in SHARES.items()}
        ends = {"slowest": max(self.steps_s)}
        return {"promised": self.promised_s, "plain": self.plain_s, "mean": self.mean_s} | quantiles | ends

    def facts(self) -> dict[str, Any]:
        """All of it as plain data (format holmes-sim/trouble/1)."""
        return {
            "format": FORMAT,
            "trouble": asdict(self.trouble),
            "step_s": self.summary(),
            "slowest_seed": self.slowest,
            "seeds": [{"seed": seed, "step_s": step} for seed, step in zip(self.seeds, self.steps_s, strict=True)],
            "simulation": {"seconds": self.seconds, "played": self.played, "interrupted": self.interrupted},
        }

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each seed."""
        import pandas as pd

        ratios = [step / self.plain_s for step in self.steps_s]
        return pd.DataFrame({"seed": self.seeds, "step (s)": self.steps_s, "times the plain step": ratios})


def trouble(
    plan: Plan,
    *,
    stragglers: str | None = None,
    jitter: str | None = None,
    degrade: str | None = None,
    flaps: str | None = None,
    seeds: Iterable[int] = range(200),
    progress: Callable[[str], None] = lambda text: None,
) -> Troubled:
    """Play a step for each seed, in trouble as the command line writes it (`1%:1.5`, `3%`, `1%:50%`, `100h:5s`).

    Seeds that draw the same are played once; Ctrl-C leaves what was played so far. Raises HolmesError."""
    asked = Faults(
        kinds.stragglers(stragglers) if stragglers is not None else None,
        kinds.jitter(jitter) if jitter is not None else 0.0,
        kinds.degraded(degrade) if degrade is not None else None,
        kinds.flaps(flaps) if flaps is not None else None,
    )
    begun, wanted = time.perf_counter(), tuple(seeds)
    if not wanted:
        raise HolmesError("seeds: at least one is needed")
    plain = simulate(plan).step_s
    played: dict[DrawnFaults, Seconds] = {kinds.NO_FAULTS: plain}
    steps: list[Seconds] = []
    try:
        for place, seed in enumerate(wanted, 1):
            progress(f"seed {place} of {len(wanted)}")
            drawn = draw(asked, plan.fleet, seed, plain)
            if drawn not in played:
                played[drawn] = simulate(plan, drawn=drawn).step_s
            steps.append(played[drawn])
    except KeyboardInterrupt:
        if not steps:
            raise
    done = wanted[: len(steps)]
    spent = time.perf_counter() - begun
    return Troubled(plan, asked, plain, done, tuple(steps), len(played), spent, len(done) < len(wanted))
