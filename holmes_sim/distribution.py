"""Distribution of the step time with faults over many seeds, beside the prediction of the plan."""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from holmes_sim import processes
from holmes_sim.running import cores
from sim import units
from sim.engine import faults as kinds
from sim.engine.engine import simulate, step_seconds
from sim.engine.faults import DrawnFaults, Faults, draw
from sim.engine.timeline import Timeline
from sim.errors import HolmesError
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.units import Seconds

if TYPE_CHECKING:
    import pandas as pd

FORMAT = "holmes-sim/trouble/1"
MOST_SEEDS, LEAST_SEEDS, BATCH = 200, 24, 8
"""Most and least number of seeds where it is not given, and how many quick ones are simulated at once (guesses)."""
MEAN_WITHIN = 0.01
"""Seeds are enough when the 95 % confidence interval of the mean step is within this share of it (a guess)."""
LONGEST_S: Seconds = 45.0
"""No further seeds are simulated that would end after this time where their number is not given (a guess)."""
SLOW_S: Seconds = 0.5
"""Simulations that take longer run on all cores (a guess: starting a process takes about a second)."""
MANY_PASSES = 10_000
"""Forwards and backwards of all ranks above which the first seeds are as many as there are cores, not one that shows how slow
they are. A guess: 147,456 passes of 192 ranks took 31 CPU seconds, so that 10,000 take longer than `SLOW_S`."""
NORMAL_95 = 1.96
"""Standard errors on each side of a 95 % confidence interval, of many seeds."""
STUDENT_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201,
    2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074,
)  # fmt: skip
"""The same of 2, 3, 4 ... seeds, whose deviation is known badly: Student's t with 1, 2, 3 ... degrees of freedom."""
SHARES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True, repr=False)
class Troubled:
    """Step time of each seed with the faults `trouble`.

    `fault_free_s` is the step without faults, `distinct_steps` the number of different steps that were simulated, `seconds` the
    time that the simulations took.
    """

    plan: Plan | PipelinesPlan
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

    @property
    def mean_within(self) -> float:
        """Half of the 95 % confidence interval of the mean step, as a share of it."""
        return _within(self.steps_s)

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
            "mean_within": self.mean_within if len(self.steps_s) > 1 else None,
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
    plan: Plan | PipelinesPlan,
    *,
    stragglers: str | None = None,
    jitter: str | None = None,
    degrade: str | None = None,
    flaps: str | None = None,
    seeds: Iterable[int] | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Troubled:
    """Simulate one step per seed with faults, written as on the command line (`1%:1.5`, `3%`, `1%:50%`, `100h:5s`).

    Without `seeds`, they are 0, 1, 2, ... until the mean is known to `MEAN_WITHIN`, there are `MOST_SEEDS`, or further ones
    would end after `LONGEST_S`, but at least two. Slow simulations are as many at once as there are cores. Seeds that draw
    equal faults are simulated once. Ctrl-C returns the seeds simulated so far. Raises HolmesError."""
    faults = Faults(
        kinds.stragglers(stragglers) if stragglers is not None else None,
        kinds.jitter(jitter) if jitter is not None else 0.0,
        kinds.degraded(degrade) if degrade is not None else None,
        kinds.flaps(flaps) if flaps is not None else None,
    )
    begun, every = time.perf_counter(), tuple(range(MOST_SEEDS) if seeds is None else seeds)
    if not every:
        raise HolmesError("seeds: at least one seed is needed")
    fault_free = simulate(plan).step_s
    simulated: dict[DrawnFaults, Seconds] = {kinds.NO_FAULTS: fault_free}
    steps: list[Seconds] = []
    interrupted = False
    try:
        is_slow = True  # until the first one is simulated, alone where it may be quick
        first = cores() if (faults.jitter or faults.flaps) and _passes(plan) > MANY_PASSES else 1
        while len(steps) < len(every):
            progress(f"seed {len(steps) + 1} of {'at most ' if seeds is None else ''}{len(every)}")
            before = time.perf_counter()
            many = BATCH - len(steps) % BATCH if not is_slow else cores() if steps else first
            drawn = [draw(faults, plan.fleet, seed, fault_free) for seed in every[len(steps) : len(steps) + many]]
            is_slow = _simulate(plan, [one for one in dict.fromkeys(drawn) if one not in simulated], simulated, is_slow)
            steps += [simulated[one] for one in drawn]
            now = time.perf_counter()
            if seeds is None and _is_enough(steps, now - begun, now - before):
                break
    except KeyboardInterrupt:
        if not steps:
            raise
        interrupted = True
    spent = time.perf_counter() - begun
    return Troubled(plan, faults, fault_free, every[: len(steps)], tuple(steps), len(simulated), spent, interrupted)


def _simulate(
    plan: Plan | PipelinesPlan, drawn: Sequence[DrawnFaults], simulated: dict[DrawnFaults, Seconds], is_slow: bool
) -> bool:
    """Simulate the step with each of these faults, on all cores if simulations are slow; whether they are now."""
    begun = time.perf_counter()
    found = processes.each(functools.partial(_step, plan), list(drawn), least=2 if is_slow else BATCH + 1)
    simulated.update(zip(drawn, found, strict=True))
    return time.perf_counter() - begun > SLOW_S * len(drawn) if drawn else is_slow


def _step(plan: Plan | PipelinesPlan, drawn: DrawnFaults) -> Seconds:
    return step_seconds(plan, drawn)


def _passes(plan: Plan | PipelinesPlan) -> int:
    """Forwards and backwards that all ranks of a plan simulate in a step where no two ranks are alike."""
    every = plan.pipelines if isinstance(plan, PipelinesPlan) else (plan,)
    return sum(2 * one.config.world_size * one.config.vpp * max(one.config.num_microbatches) for one in every)


def _is_enough(steps: Sequence[Seconds], spent: Seconds, last: Seconds) -> bool:
    """Whether the mean of the steps is known well enough, or seeds that take as long as the `last` ones would end too late."""
    return (spent + last > LONGEST_S and len(steps) > 1) or (len(steps) >= LEAST_SEEDS and _within(steps) <= MEAN_WITHIN)


def _within(steps: Sequence[Seconds]) -> float:
    """Half of the 95 % confidence interval of the mean, as a share of it; infinite for one step."""
    if len(steps) < 2:
        return math.inf
    errors = STUDENT_95[len(steps) - 2] if len(steps) - 2 < len(STUDENT_95) else NORMAL_95
    return errors * statistics.stdev(steps) / math.sqrt(len(steps)) / statistics.fmean(steps)
