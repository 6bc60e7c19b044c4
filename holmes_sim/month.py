"""Goodput of a month of training with failures, and the best interval between checkpoints."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from html import escape
from typing import Any

from sim.engine.engine import simulate
from sim.errors import HolmesError
from sim.plan.plan import Plan
from sim.results import goodput as runs
from sim.results.goodput import DAY, Account, Run
from sim.units import Seconds, duration_text

FORMAT = "holmes-sim/goodput/1"


@dataclass(frozen=True, slots=True, repr=False)
class Month:
    """Event simulations of `days` days of training a plan with failures, one per seed; checkpoint intervals are whole steps."""

    plan: Plan
    run: Run
    step_s: Seconds
    days: float
    seeds: tuple[int, ...]
    accounts: tuple[Account, ...]

    def __repr__(self) -> str:
        return (
            f"{self.days:g} days of {self.plan.topology.name}: goodput {self.goodput:.2%} "
            f"(closed form {self.run.goodput:.2%}), a checkpoint every {duration_text(self.run.interval)}"
        )

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{name}</th><td>{share:.2%}</td></tr>" for name, share in self.shares.items())
        return f"<p>{escape(repr(self))}</p><table>{rows}</table>"

    @property
    def young_s(self) -> Seconds:
        """Young's optimum checkpoint interval (`sim.results.goodput`)."""
        return runs.young(self.run.checkpoint, self.run.between)

    @property
    def daly_s(self) -> Seconds:
        """Daly's optimum checkpoint interval (`sim.results.goodput`)."""
        return runs.daly(self.run.checkpoint, self.run.between)

    @property
    def goodputs(self) -> tuple[float, ...]:
        """Fraction of the time spent on useful steps, for each seed."""
        return tuple(account.useful / (self.days * DAY) for account in self.accounts)

    @property
    def goodput(self) -> float:
        """Mean over seeds of the fraction of the time spent on useful steps."""
        return math.fsum(self.goodputs) / len(self.goodputs)

    @property
    def shares(self) -> dict[str, float]:
        """Fractions of the time, means over seeds: useful, saving (checkpoints), lost (undone by failures), restarting."""
        whole = self.days * DAY * len(self.accounts)
        return {
            name: math.fsum(getattr(account, name) for account in self.accounts) / whole
            for name in ("useful", "saving", "lost", "restarting")
        }

    @property
    def failures(self) -> dict[str, float]:
        """Number of failures by kind, mean over seeds."""
        kinds = self.run.rates
        return {kind: sum(account.failures[kind] for account in self.accounts) / len(self.accounts) for kind in kinds}

    @property
    def tokens(self) -> float:
        """Tokens of useful steps, mean over seeds."""
        return self.goodput * self.days * DAY / self.step_s * self.plan.workload.tokens

    def at(self, interval: Seconds) -> float:
        """Goodput of the closed form with another checkpoint interval."""
        return replace(self.run, interval=interval).goodput

    def facts(self) -> dict[str, Any]:
        """The result as plain data (format holmes-sim/goodput/1)."""
        best, worst = max(self.goodputs), min(self.goodputs)
        return {
            "format": FORMAT,
            "run": asdict(self.run),
            "step_s": self.step_s,
            "days": self.days,
            "mean_time_between_failures_s": self.run.between,
            "interval_s": {"used": self.run.interval, "young": self.young_s, "daly": self.daly_s},
            "goodput": {"closed_form": self.run.goodput, "mean": self.goodput, "least": worst, "most": best},
            "shares": self.shares,
            "failures": self.failures,
            "tokens": self.tokens,
            "seeds": [{"seed": seed} | asdict(account) for seed, account in zip(self.seeds, self.accounts, strict=True)],
        }


def goodput(
    plan: Plan,
    *,
    checkpoint: str,
    restart: str,
    fail: Iterable[str] = (),
    interval: str | None = None,
    days: float = 30.0,
    seeds: Iterable[int] = range(200),
) -> Month:
    """Simulate `days` days of training a plan with failures, checkpoints and restarts, once per seed.

    Times are text such as `60s` or `10min`. `fail` has texts such as `device:50000h` (kind, and mean time between failures of
    one); if it is empty, the failure rate of the Llama 3 training run is used. The checkpoint interval defaults to Daly's and
    is rounded to whole steps. Raises HolmesError."""
    step_s = plan.prediction.step_s if plan.prediction is not None else simulate(plan).step_s
    saves, restarts = runs.seconds("--checkpoint", checkpoint, "60s"), runs.seconds("--restart", restart, "10min")
    if not saves:
        raise HolmesError(
            "--checkpoint 0s: a checkpoint that takes no time would be written after every step; give a time such as 10s"
        )
    run = Run(runs.counts(plan), runs.mtbf(tuple(fail)), saves, restarts, step_s)
    if not run.rates:
        raise HolmesError(f"--fail: the plan uses no {' and no '.join(run.mtbf)}; give a kind that it uses")
    asked_interval = runs.seconds("--interval", interval, "30min") if interval is not None else runs.daly(saves, run.between)
    run = replace(run, interval=max(round(asked_interval / step_s), 1) * step_s)
    if run.goodput * days * DAY < step_s:
        raise HolmesError(
            f"--fail: no step of {days:g} days is useful: there is a failure every {duration_text(run.between)}, "
            f"a restart takes {duration_text(restarts)}, and a step with a checkpoint {duration_text(step_s + saves)}"
        )
    every = tuple(seeds)
    return Month(plan, run, step_s, days, every, tuple(runs.simulated(run, days * DAY, seed) for seed in every))
