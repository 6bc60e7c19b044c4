"""A whole training run of islands: days, device hours, money and energy, by tokens and by effective tokens, with failures.

Islands that train 2 T tokens do not end with the loss of synchronous training on 2 T tokens. Where the worth of a token is
known (`sim.islands.token_worth`), a second count has the tokens that islands need for that loss."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from holmes_sim.intervals import step_range
from holmes_sim.islands_goodput import island_runs
from holmes_sim.whole_runs import CHECKPOINT, MWH, RESTART, tokens_of
from sim.errors import OptionError
from sim.islands.prediction import predict
from sim.islands.token_worth import TokenWorth, token_worth
from sim.plan.islands import IslandsPlan
from sim.results import goodput, islands_cost
from sim.results.goodput import DAY, HOUR, Run
from sim.units import Seconds, tokens_text


@dataclass(frozen=True, slots=True)
class Spent:
    """What a number of tokens takes. `days`: expected, least and most. `usd` and `mwh` (of the devices alone) are None where a
    price, or a power, is unknown."""

    tokens: float
    days: tuple[float, float, float]
    device_hours: float
    usd: float | None
    mwh: float | None


@dataclass(frozen=True, slots=True)
class IslandsWholeRun:
    """A training run of islands on `tokens`.

    by_tokens: these tokens are trained; its days have the range of inner steps, in which 80 % of measured ones are expected.
    by_effective_tokens: so many are trained that the loss is that of synchronous training on `tokens`; its days have the range
    of the worth of a token. None where the worth is unknown. goodput: of the islands, of which one that fails does not stop the
    others (`holmes_sim.islands_goodput`)."""

    tokens: float
    by_tokens: Spent
    by_effective_tokens: Spent | None
    worth: TokenWorth | None
    goodput: float
    restart_s: Seconds

    def __repr__(self) -> str:
        effective = self.by_effective_tokens
        more = f", {effective.days[0]:,.3g} by effective tokens" if effective is not None else ""
        return f"{tokens_text(self.tokens)} tokens on islands in {self.by_tokens.days[0]:,.3g} days{more}"

    def facts(self) -> dict[str, Any]:
        """The run as plain data."""
        return asdict(self)


def whole_run_islands(
    plan: IslandsPlan, tokens: str | float, failures: Iterable[Run] | None = None, share: float | None = None
) -> IslandsWholeRun:
    """The training of the model of a plan of islands on `tokens` (a number, or text such as `2T`).

    `failures`: the runs of the islands; if None, failures at the rate of the Llama 3 training run. `share`: the goodput, where
    islands leave and come back, too. Raises OptionError."""
    number = tokens_of(tokens)
    plan = plan if plan.prediction is not None else plan.annotated(predict(plan)[1])
    runs = tuple(failures or island_runs(plan, goodput.mtbf(()), RESTART, CHECKPOINT))
    if share is None:
        share = sum(weight * run.goodput for weight, run in zip(plan.weights, runs, strict=True))
    if not share:
        raise OptionError("no step is useful: failures (--fail) and leaves (--leave) come faster than exchanges")
    worth = token_worth(plan)
    effective = None
    if worth is not None:
        days = tuple(number / one / share for one in (worth.expected, worth.high, worth.low))
        effective = _spent(plan, number / worth.expected, share, tuple(paid / days[0] for paid in days))
    return IslandsWholeRun(number, _spent(plan, number, share, _inner_range(plan)), effective, worth, share, runs[0].restart)


def _spent(plan: IslandsPlan, tokens: float, share: float, spread: tuple[float, ...]) -> Spent:
    """What tokens take at a goodput; `spread`: days over those expected, for 1, the least and the most."""
    assert plan.prediction is not None
    paid = tokens / share
    days = paid / plan.prediction.tokens_per_s / DAY
    usd, joules = islands_cost.usd_per_token(plan), islands_cost.joules_per_token(plan)
    devices = sum(island.config.world_size for island in plan.islands)
    return Spent(
        tokens=tokens,
        days=(days, days * spread[1], days * spread[2]),
        device_hours=devices * days * DAY / HOUR,
        usd=None if usd is None else usd * paid,
        mwh=None if joules is None else joules * paid / MWH,
    )


def _inner_range(plan: IslandsPlan) -> tuple[float, float, float]:
    """An outer period over the predicted one, for 1, and for the least and most seconds of the slowest inner step; exchanges as
    predicted."""
    assert plan.prediction is not None
    period, steps, inner = plan.prediction.period_s, plan.sync.inner_steps, plan.prediction.inner_step_s
    slowest = max(range(len(inner)), key=lambda index: inner[index])
    expected = step_range(inner[slowest], plan.islands[slowest])
    low, high = (1 + steps * (end - inner[slowest]) / period for end in (expected.low_s, expected.high_s))
    return 1.0, low, high
