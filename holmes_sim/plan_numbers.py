"""Numbers by which plans are compared, whether they are exact or of islands: tokens per second, and what a token is worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.islands.search import SyncAnswer
from planner.islands.sync_rows import SyncRow
from sim.plan.islands import IslandsPlan
from sim.plan.plan import Plan
from sim.sync import PRICES, Price
from sim.units import Seconds

SYNC_FACTS = ("sync", "inner_steps", "price", "token_worth", "token_worth_low", "token_worth_high", "effective_tokens_per_s")
"""Keys of `PlanNumbers.facts` that only say something where islands are allowed."""


@dataclass(frozen=True, slots=True)
class PlanNumbers:
    """The speed of a plan, and what it gives up.

    step_s: seconds of a step; of islands, the mean of an inner step with its part of the exchanges. sync: the sync strategy in
    few words. inner_steps: steps between two exchanges of the same parameters. price: what it gives up (`sim.sync.PRICES`).
    worth: tokens of synchronous training that a token is worth, with its least and largest value (`sim.islands.token_worth`);
    None where that is unknown. gap: how far the plan may be from the best one, a fraction of its speed; None where no search
    has proved it."""

    step_s: Seconds
    tokens_per_s: float
    gap: float | None = None
    sync: str = "exact"
    inner_steps: int = 1
    price: Price = "exact"
    worth: tuple[float, float, float] | None = (1.0, 1.0, 1.0)

    @property
    def effective(self) -> float | None:
        """Tokens of synchronous training per second that give the same loss; None where that is unknown."""
        return None if self.worth is None else self.tokens_per_s * self.worth[0]

    @property
    def speed(self) -> float:
        """Effective tokens per second; tokens per second where their worth is unknown."""
        return self.tokens_per_s if self.effective is None else self.effective

    @property
    def rank(self) -> tuple[bool, float]:
        """What orders plans, the best last: a known worth goes before an unknown one."""
        return self.worth is not None, self.speed

    @property
    def given_up(self) -> tuple[int, int]:
        """What orders plans by what they give up, the least first: the price, then the inner steps."""
        return tuple(PRICES).index(self.price), self.inner_steps

    def gain_over(self, now: PlanNumbers) -> float | None:
        """Gain in speed over another plan (0.1: 10 % more); None where the worth of a token is known of one of them only."""
        return self.speed / now.speed - 1 if (self.worth is None) == (now.worth is None) else None

    def facts(self) -> dict[str, Any]:
        """The numbers as plain data."""
        worth = dict(zip(("token_worth", "token_worth_low", "token_worth_high"), self.worth or (None, None, None), strict=True))
        return {
            "step_s": self.step_s,
            "tokens_per_s": self.tokens_per_s,
            "sync": self.sync,
            "inner_steps": self.inner_steps,
            "price": self.price,
            **worth,
            "effective_tokens_per_s": self.effective,
        }


def of_plan(plan: Plan) -> PlanNumbers:
    """The numbers of an exact plan with a prediction."""
    assert plan.prediction is not None
    gap = plan.certificate.gap if plan.certificate is not None else None
    return PlanNumbers(plan.prediction.step_s, plan.prediction.tokens_per_s, gap)


def of_row(row: SyncRow, gap: float | None = None) -> PlanNumbers:
    """The numbers of a row of a search for islands."""
    plan, worth = row.plan, row.worth
    if isinstance(plan, IslandsPlan):
        assert plan.prediction is not None
        steps = plan.sync.inner_steps
        step = plan.prediction.period_s / steps
    else:
        assert plan.prediction is not None
        step, steps = plan.prediction.step_s, 1
    known = None if worth is None else (worth.expected, worth.low, worth.high)
    return PlanNumbers(step, row.tokens_per_s, gap, row.short, steps, row.price, known)


def of_answer(answer: SyncAnswer) -> PlanNumbers:
    """The numbers of the best plan of a search for islands; its gap is that to all searched plans of the allowed strategies."""
    return of_row(answer.best, answer.gap)
