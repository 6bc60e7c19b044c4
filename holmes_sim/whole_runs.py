"""A whole training run of some number of tokens: days, device hours, money and energy, with failures."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from holmes_sim.intervals import step_range
from sim import units
from sim.engine.engine import simulate
from sim.errors import OptionError
from sim.plan.plan import Plan
from sim.results import goodput
from sim.results.goodput import DAY, HOUR, Run
from sim.results.report import predict
from sim.units import MEGA, Seconds

CHECKPOINT: Seconds = 10.0
RESTART: Seconds = 300.0
"""Seconds of a checkpoint and of a restart where none are given. Guesses: with these two, the failures of the Llama 3 training
run give the effective time that it reported, above 90 % (arXiv 2407.21783, section 3.3.4)."""
MWH = MEGA * HOUR
"""Joules of a megawatt hour."""


@dataclass(frozen=True, slots=True)
class WholeRun:
    """A training run. `days` has the days at the predicted step, then those at both ends of its range, in which 80 % of
    measured steps are expected. `usd` and `mwh` (of the devices alone) are None where a price, or a power, is unknown."""

    tokens: float
    days: tuple[float, float, float]
    device_hours: float
    usd: float | None
    mwh: float | None
    goodput: float
    checkpoint_s: Seconds
    restart_s: Seconds

    def __repr__(self) -> str:
        days, least, most = self.days
        return f"{units.tokens_text(self.tokens)} tokens in {days:,.3g} days ({least:,.3g} to {most:,.3g})"

    def facts(self) -> dict[str, Any]:
        """The run as plain data."""
        return asdict(self)


def tokens_of(given: str | float) -> float:
    """A number of tokens, also from text such as `2T` or `300B`. Raises OptionError."""
    try:
        number = units.parse(given, "number of tokens") if isinstance(given, str) else float(given)
    except ValueError as error:
        raise OptionError(f"--tokens {error}") from None
    if not 0 < number < math.inf:
        raise OptionError(f"--tokens {given}: more than 0 are needed, such as 2T")
    return number


def usual_failures(devices: int) -> Run:
    """Failures of a number of devices at the rate of the Llama 3 training run, with `CHECKPOINT`, `RESTART` and Daly's interval
    between checkpoints."""
    run = Run({"device": devices}, goodput.mtbf(()), CHECKPOINT, RESTART, 0.0)
    return replace(run, interval=goodput.daly(CHECKPOINT, run.between))


def whole_run(plan: Plan, tokens: str | float, failures: Run | None = None) -> WholeRun:
    """The training of a plan's model on `tokens` (a number, or text such as `2T`). `failures` are `usual_failures` if None.

    Every step takes as long as the predicted one; failures return to the last checkpoint (`sim.results.goodput`, closed form).
    Raises OptionError."""
    number = tokens_of(tokens)
    run = failures or usual_failures(plan.config.world_size)
    numbers = plan.prediction or predict(plan, simulate(plan))
    share = run.goodput
    if not share:
        raise OptionError("--fail: no step is useful: failures come faster than checkpoints")
    expected = step_range(numbers.step_s, plan)
    paid = number / share
    days = tuple(paid / plan.workload.tokens * step / DAY for step in (numbers.step_s, expected.low_s, expected.high_s))
    return WholeRun(
        tokens=number,
        days=(days[0], days[1], days[2]),
        device_hours=plan.config.world_size * days[0] * DAY / HOUR,
        usd=None if numbers.usd_per_token is None else numbers.usd_per_token * paid,
        mwh=None if numbers.joules_per_token is None else numbers.joules_per_token * paid / MWH,
        goodput=share,
        checkpoint_s=run.checkpoint,
        restart_s=run.restart,
    )


def cost_within(budget: str, tokens: str, devices: int) -> str:
    """The cost per token with which a training run of `tokens` stays within a budget, as text for `require.cost`, such as
    `1.5e-07 USD/token`. What failures undo is paid for, too, as of a run on `devices`. Raises OptionError."""
    try:
        most = units.parse(budget, "sum of money")
    except ValueError as error:
        raise OptionError(f"--budget {error}") from None
    return f"{most * usual_failures(devices).goodput / tokens_of(tokens):.9g} USD/token"
