"""Most days of a training run, as a limit of the step, and why no plan keeps to it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from sim.errors import TooLate
from sim.plan.plan import Plan
from sim.results.goodput import DAY
from sim.units import GIGA, MEGA, Seconds, time_text, tokens_text

DIGITS = 3
"""Significant digits of the days and tokens of a remedy, rounded to the side that is met."""


@dataclass(frozen=True, slots=True)
class TrainingTime:
    """Most `days` in which `tokens` are trained, where a share `goodput` of the time is spent on steps that no failure undoes.

    goodput is one number for all plans of a request, so that the days of a plan grow with its step and the least bound on the
    step is one on the days. source: where it comes from, in words."""

    days: float
    tokens: float
    goodput: float
    source: str

    def days_of(self, step: Seconds, tokens: float) -> float:
        """The days of a run with steps of some seconds, each on `tokens` tokens."""
        return self.tokens / tokens * step / self.goodput / DAY

    def most_step(self, tokens: float) -> Seconds:
        """The longest step that is allowed, for steps on `tokens` tokens."""
        return self.days * DAY * self.goodput * tokens / self.tokens

    def __str__(self) -> str:
        return f"days at most {self.days:.6g} for {tokens_text(self.tokens)} tokens, goodput {self.goodput:.1%} ({self.source})"

    def fault(self, plan: Plan) -> str:
        """What a plan with a prediction exceeds, as text; empty where it keeps to the days, or has no prediction."""
        if plan.prediction is None or plan.prediction.step_s <= self.most_step(plan.workload.tokens) * (1 + 1e-12):
            return ""
        days = self.days_of(plan.prediction.step_s, plan.workload.tokens)
        return f"a training of {days:.4g} days for {tokens_text(self.tokens)} tokens, more than {self.days:.6g}"

    def too_late(self, plan: Plan) -> TooLate:
        """The error where the fastest plan that was found takes more days: what it takes, the least days of all plans by its
        certificate, and the days and the tokens that it reaches."""
        assert plan.prediction is not None
        step, per_step = plan.prediction.step_s, plan.workload.tokens
        days, tokens = self.days_of(step, per_step), tokens_text(self.tokens)
        found = (
            f"no plan that was found trains {tokens} tokens in {self.days:.6g} days, with steps of "
            f"{time_text(self.most_step(per_step))} at a goodput of {self.goodput:.1%} ({self.source}): the fastest takes "
            f"{days:.4g} days, with steps of {time_text(step)}"
        )
        if plan.certificate is None:
            return self._error(found, days, None)
        return self._error(found, days, self.days_of(plan.certificate.lower_bound_s, per_step))

    def too_slow(self, who: str, speed: float, at_most: float, tokens: str) -> TooLate:
        """The error where the plan with most tokens per second that was found takes more days.

        who: which plans, in words; at_most: tokens per second that no searched plan exceeds; tokens: what is counted, in
        words."""
        days, needed = self.days_of(1.0, speed), self.tokens / (self.days * DAY * self.goodput)
        found = (
            f"{who} trains {tokens_text(self.tokens)} tokens in {self.days:.6g} days, which takes {needed:,.0f} tokens/s at a "
            f"goodput of {self.goodput:.1%} ({self.source}): the fastest takes {days:.4g} days, with {speed:,.0f} {tokens}"
        )
        return self._error(found, days, self.days_of(1.0, at_most))

    def _error(self, found: str, days: float, least: float | None) -> TooLate:
        """The error with its remedy; `least`: the least days of all searched plans, None if they are not known."""
        reached = self.tokens * self.days / days
        unit, letter = (GIGA, "B") if reached >= GIGA else (MEGA, "M")
        fewer = f"{_rounded(reached / unit, math.floor)}{letter}"
        remedy = f"; remedy: at least {_rounded(days, math.ceil)} days, or at most {fewer} tokens"
        if not least:
            return TooLate(found + remedy, days)
        more = "" if least > self.days else ", so one in time may exist, which a longer --time-limit may find"
        return TooLate(f"{found}\nno plan of the searched space takes less than {least:.4g} days{more}{remedy}", days)


def _rounded(number: float, rounding: Callable[[float], int]) -> str:
    """A positive number with `DIGITS` significant digits, rounded up (`math.ceil`) or down (`math.floor`)."""
    unit = 10.0 ** (math.floor(math.log10(number)) + 1 - DIGITS)
    return f"{rounding(number / unit) * unit:.{DIGITS + 3}g}"
