"""A month of training with failures: what part of it lasts, and how often to save."""

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
    """So many days of a plan's steps under `run`, event by event for each seed; intervals are whole steps."""

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
        """Young's interval."""
        return runs.young(self.run.checkpoint, self.run.between)

    @property
    def daly_s(self) -> Seconds:
        """Daly's interval."""
        return runs.daly(self.run.checkpoint, self.run.between)

    @property
    def goodputs(self) -> tuple[float, ...]:
        """Useful part of the time, of each seed."""
        return tuple(account.useful / (self.days * DAY) for account in self.accounts)

    @property
    def goodput(self) -> float:
        """Mean useful part of the time."""
        return math.fsum(self.goodputs) / len(self.goodputs)

    @property
    def shares(self) -> dict[str, float]:
        """Where the time goes, mean over the seeds: useful, saving, lost, restarting."""
        whole = self.days * DAY * len(self.accounts)
        return {
            name: math.fsum(getattr(account, name) for account in self.accounts) / whole
            for name in ("useful", "saving", "lost", "restarting")
        }

    @property
    def failures(self) -> dict[str, float]:
        """Failures by kind, mean over the seeds."""
        kinds = self.run.rates
        return {kind: sum(account.failures[kind] for account in self.accounts) / len(self.accounts) for kind in kinds}

    @property
    def tokens(self) -> float:
        """Tokens that last, mean over the seeds."""
        return self.goodput * self.days * DAY / self.step_s * self.plan.workload.tokens

    def at(self, interval: Seconds) -> float:
        """The closed form's goodput with another interval."""
        return replace(self.run, interval=interval).goodput

    def facts(self) -> dict[str, Any]:
        """All of it as plain data (format holmes-sim/goodput/1)."""
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
    """What part of a month lasts. Times are text (`60s`, `10min`); `fail` is `device:50000h` and the like, Llama 3's if empty.

    The interval is Daly's unless given, rounded to whole steps. Raises HolmesError."""
    step_s = plan.prediction.step_s if plan.prediction is not None else simulate(plan).step_s
    saves, restarts = runs.seconds("--checkpoint", checkpoint, "60s"), runs.seconds("--restart", restart, "10min")
    if not saves:
        raise HolmesError("--checkpoint 0s: work that is saved at no cost is saved after every step; write 10s, say")
    run = Run(runs.counts(plan), runs.mtbf(tuple(fail)), saves, restarts, step_s)
    if not run.rates:
        raise HolmesError(f"--fail: the plan uses no {' and no '.join(run.mtbf)}; name what it uses")
    wished = runs.seconds("--interval", interval, "30min") if interval is not None else runs.daly(saves, run.between)
    run = replace(run, interval=max(round(wished / step_s), 1) * step_s)
    if run.goodput * days * DAY < step_s:
        raise HolmesError(
            f"--fail: not one step of {days:g} days lasts, as something fails every {duration_text(run.between)}, "
            f"and a restart takes {duration_text(restarts)}, a step and a checkpoint {duration_text(step_s + saves)}"
        )
    asked = tuple(seeds)
    return Month(plan, run, step_s, days, asked, tuple(runs.simulated(run, days * DAY, seed) for seed in asked))
