"""Distribution of the step time with faults over many seeds, beside the prediction of the plan."""

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
    """Step time of each seed with the faults `trouble`.

    `fault_free_s` is the step without faults, `distinct_steps` the number of different steps that were simulated, `seconds` the
    time that the simulations took.
    """

    plan: Plan
    trouble: Faults
    fault_free_s: Seconds
    seeds: tuple[int, ...]
    steps_s: tuple[Seconds, ...]
    distinct_steps: int
    seconds: Seconds
    interrupted: bool = False

    def __repr__(self) -> str:
        times = ", ".join(f"{name} {units.time_text(seconds)}" for name, seconds in self.summary().items())
        return f"{len(self.seeds):,} steps of {self.plan.topology.name} with faults ({self.trouble}): {times}"

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{name}</th><td>{seconds:.4g} s</td></tr>" for name, seconds in self.summary().items())
        return f"<p>{escape(repr(self))}</p><table>{rows}</table>"

    @property
    def predicted_s(self) -> Seconds:
        """Step time in the prediction of the plan; without a prediction, the step without faults."""
        return self.plan.prediction.step_s if self.plan.prediction is not None else self.fault_free_s

    @property
    def mean_s(self) -> Seconds:
        """Mean step time."""
        return math.fsum(self.steps_s) / len(self.steps_s)

    def quantile_s(self, share: float) -> Seconds:
        """Quantile of the step time: the smallest step time that at least `share` of the seeds do not exceed."""
        return sorted(self.steps_s)[max(math.ceil(share * len(self.steps_s)), 1) - 1]

    @property
    def slowest(self) -> int:
        """The seed of the longest step; the first one if several are equal."""
        return self.seeds[self.steps_s.index(max(self.steps_s))]

    def drawn(self, seed: int) -> DrawnFaults:
        """The faults that a seed draws."""
        return draw(self.trouble, self.plan.fleet, seed, self.fault_free_s)

    def timeline(self, seed: int) -> Timeline:
        """Simulate the step of a seed again and return its timeline."""
        return simulate(self.plan, drawn=self.drawn(seed))

    def summary(self) -> dict[str, Seconds]:
        """Step times in seconds by name: predicted (in the plan), fault_free (simulated now), mean, quantiles, slowest."""
        quantiles = {name: self.quantile_s(share) for name, share in SHARES.items()}
        ends = {"slowest": max(self.steps_s)}
        return {"predicted": self.predicted_s, "fault_free": self.fault_free_s, "mean": self.mean_s} | quantiles | ends

    def facts(self) -> dict[str, Any]:
        """The distribution as plain data (format holmes-sim/trouble/1)."""
        return {
            "format": FORMAT,
            "trouble": asdict(self.trouble),
            "step_s": self.summary(),
            "slowest_seed": self.slowest,
            "seeds": [{"seed": seed, "step_s": step} for seed, step in zip(self.seeds, self.steps_s, strict=True)],
            "simulation": {"seconds": self.seconds, "distinct_steps": self.distinct_steps, "interrupted": self.interrupted},
        }

    @property
    def frame(self) -> pd.DataFrame:
        """Data frame with one row per seed."""
        import pandas as pd

        ratios = [step / self.fault_free_s for step in self.steps_s]
        return pd.DataFrame({"seed": self.seeds, "step (s)": self.steps_s, "times the fault-free step": ratios})


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
    """Simulate one step per seed with faults, written as on the command line (`1%:1.5`, `3%`, `1%:50%`, `100h:5s`).

    Seeds that draw equal faults are simulated once. Ctrl-C returns the seeds simulated so far. Raises HolmesError."""
    faults = Faults(
        kinds.stragglers(stragglers) if stragglers is not None else None,
        kinds.jitter(jitter) if jitter is not None else 0.0,
        kinds.degraded(degrade) if degrade is not None else None,
        kinds.flaps(flaps) if flaps is not None else None,
    )
    begun, every = time.perf_counter(), tuple(seeds)
    if not every:
        raise HolmesError("seeds: at least one seed is needed")
    fault_free = simulate(plan).step_s
    simulated: dict[DrawnFaults, Seconds] = {kinds.NO_FAULTS: fault_free}
    steps: list[Seconds] = []
    try:
        for number, seed in enumerate(every, 1):
            progress(f"seed {number} of {len(every)}")
            drawn = draw(faults, plan.fleet, seed, fault_free)
            if drawn not in simulated:
                simulated[drawn] = simulate(plan, drawn=drawn).step_s
            steps.append(simulated[drawn])
    except KeyboardInterrupt:
        if not steps:
            raise
    done = every[: len(steps)]
    spent = time.perf_counter() - begun
    return Troubled(plan, faults, fault_free, done, tuple(steps), len(simulated), spent, len(done) < len(every))
