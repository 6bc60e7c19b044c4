"""The outcome of a change: the step of its plan, the gain over the plan of today, and how much of the gain is proved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from holmes_sim.change_planning import Answer
from holmes_sim.changes import Change
from sim import units
from sim.hardware.topology import Topology
from sim.plan.prediction import Prediction
from sim.results import cost_energy
from sim.units import Seconds

PLANNED, PRESENT_PLAN, UNUSED = "planned", "simulated", "unused"
"""Values of `Outcome.how`: the change was replanned; only the present plan was simulated on it; every plan found on an addition
is slower than one that leaves it, or a part of it, unused (or held back to the speed of today)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a change: `tokens_per_s` and `step_s` of its plan, and its `gain` in tokens/s (0.1: 10% more than the plan of
    today has).

    `usd_per_h` is the rent that the change adds (None if a price is missing). `how` is one of the constants of this module.
    `gap` is the proven gap to the best plan of a replanned change, else None. `present_step_s` is the step of the present plan,
    simulated on the changed topology; None if that was not done or the plan does not exist there. Without a plan the numbers
    are None and `reason` says why."""

    change: Change
    step_s: Seconds | None
    tokens_per_s: float | None
    gain: float | None
    usd_per_h: float | None
    how: str
    reason: str = ""
    gap: float | None = None
    present_step_s: Seconds | None = None

    @property
    def is_evaluated(self) -> bool:
        """Whether the change was replanned, or the present plan was simulated on it."""
        return self.step_s is not None or self.how == PLANNED

    @property
    def per_cost(self) -> float | None:
        """Gain (a fraction) per added USD/h; None if the change adds no cost or its cost is unknown."""
        return None if self.gain is None or self.usd_per_h is None or self.usd_per_h <= 0 else self.gain / self.usd_per_h

    @property
    def gain_at_most(self) -> float | None:
        """The largest gain over the present plan that a plan of the changed topology can have; None if it was not replanned."""
        return None if self.gain is None or self.gap is None or self.gap >= 1 else (1 + self.gain) / (1 - self.gap) - 1

    def is_known(self, present_gap: float) -> bool:
        """Whether it is proved that the best plan of the changed topology is faster, or slower, than the best one of today.

        A gain must exceed what better plans of today might gain without the change, by the proven gap of the present plan. A
        loss must remain with the best plan of the changed topology."""
        if self.gain is None:
            return False
        if self.gain > 0:
            return (1 + self.gain) * (1 - present_gap) > 1
        return self.gain_at_most is not None and self.gain_at_most < 0

    def facts(self, present_gap: float) -> dict[str, Any]:
        """The result as plain data."""
        return {
            "change": self.change.name,
            "step_s": self.step_s,
            "tokens_per_s": self.tokens_per_s,
            "gain": self.gain,
            "gain_at_most": self.gain_at_most,
            "gain_known": self.is_known(present_gap),
            "cost": self.usd_per_h,
            "gain_per_usd_per_h": self.per_cost,
            "how": self.how,
            "gap": self.gap,
            "present_plan_step_s": self.present_step_s,
            "reason_if_none": self.reason or None,
            "edits": dict(self.change.edits),
        }


def outcome(
    now: Prediction, change: Change, cost: float | None, simulated: Prediction | None, answer: Answer | None
) -> Outcome:
    """Result of a change with a cost in USD/h: the fastest of the present plan on it (`simulated`), its new plan (`answer`)
    and, for an addition that was evaluated, the present plan as it is today."""
    present_s = simulated.step_s if simulated else None
    planned = answer if answer is not None and not answer.reason else None
    known = [(simulated.tokens_per_s, simulated.step_s, PRESENT_PLAN)] if simulated else []
    known += [(planned.tokens_per_s, planned.step_s, PLANNED)] if planned else []
    known += [(now.tokens_per_s, now.step_s, UNUSED)] if change.adds and (simulated or answer) else []
    if not known:
        reason = "the time limit was reached" if answer is None else answer.reason
        return Outcome(change, None, None, None, cost, PLANNED if answer else PRESENT_PLAN, reason)
    tokens, step, how = max(known, key=lambda found: found[0])
    how = PLANNED if planned and how != UNUSED else how
    found = Outcome(change, step, tokens, tokens / now.tokens_per_s - 1, cost, how, present_step_s=present_s)
    return found if planned is None or planned.gap is None else replace(found, gap=_gap(planned, step))


def _gap(planned: Answer, step: Seconds) -> float:
    """Gap of a step, by the lower bound of the new plan."""
    assert planned.gap is not None
    return max(1 - planned.step_s * (1 - planned.gap) / step, 0.0)


def with_smaller_sizes(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes, where a larger size takes the plan of a smaller one that is faster: it leaves the rest unused."""
    best: dict[str, Outcome] = {}
    found: list[Outcome] = []
    for one in outcomes:
        smaller = best.get(one.change.family)
        if one.change.family and smaller is not None and _tokens(smaller) > _tokens(one):
            assert smaller.step_s is not None
            bound = None if one.gap is None or one.step_s is None else one.step_s * (1 - one.gap)
            gap = None if bound is None else max(1 - bound / smaller.step_s, 0.0)
            tokens, gain = smaller.tokens_per_s, smaller.gain
            one = replace(one, step_s=smaller.step_s, tokens_per_s=tokens, gain=gain, gap=gap, how=UNUSED, reason="")
        best[one.change.family] = one
        found.append(one)
    return found


def _tokens(one: Outcome) -> float:
    return -math.inf if one.tokens_per_s is None else one.tokens_per_s


def added_rent(change: Change, where: Topology, changed: Topology) -> float | None:
    """Rent that a change adds, in USD/h; None if a price is missing, or if a change of hardware does not change the rent."""
    before, after = cost_energy.rent(where.fleet), cost_energy.rent(changed.fleet)
    of_machines = any(path.startswith(("clusters.", "links")) for path, _ in change.edits)
    if before is None or after is None or (of_machines and before == after):
        return None
    return (after - before) / units.KINDS["price"][0]["USD/h"]
