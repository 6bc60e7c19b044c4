"""The outcome of a change: the numbers of its plan, the gain over the plan of today, and how much of the gain is proved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from holmes_sim.change_planning import Answer
from holmes_sim.changes import Change
from holmes_sim.plan_numbers import PlanNumbers
from planner.islands.search import NEAR
from sim import units
from sim.hardware.topology import Topology
from sim.results import cost_energy
from sim.units import Seconds

PLANNED, PRESENT_PLAN, UNUSED = "planned", "simulated", "unused"
"""Values of `Outcome.how`: the change was replanned; only the present plan was simulated on it; every plan found on an addition
is slower than one that leaves it, or a part of it, unused (or held back to the speed of today)."""

SAME = 1e-9
"""Relative difference of two speeds that rounding explains. Guess."""
FACTS = tuple(PlanNumbers(1.0, 1.0).facts())
"""Keys of the numbers of a plan."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a change: the numbers of the plan `found`, with the proven gap of a replanned change, and its `gain` in speed
    (0.1: 10% more than the plan of today has).

    `usd_per_h` is the rent that the change adds (None if a price is missing). `how` is one of the constants of this module.
    `present_step_s` is the step of the present plan, simulated on the changed topology; None if that was not done or the plan
    does not exist there. Without a plan `found` is None and `reason` says why. `gain` is also None where the speeds of the two
    plans cannot be compared (`PlanNumbers.gain_over`)."""

    change: Change
    found: PlanNumbers | None
    gain: float | None
    usd_per_h: float | None
    how: str
    reason: str = ""
    present_step_s: Seconds | None = None

    @property
    def step_s(self) -> Seconds | None:
        """Seconds of a step of the plan; None without one."""
        return None if self.found is None else self.found.step_s

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens per second of the plan; None without one."""
        return None if self.found is None else self.found.tokens_per_s

    @property
    def gap(self) -> float | None:
        """The proven gap to the best plan of a replanned change, else None."""
        return None if self.found is None else self.found.gap

    @property
    def is_evaluated(self) -> bool:
        """Whether the change was replanned, or the present plan was simulated on it."""
        return self.found is not None or self.how == PLANNED

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
        numbers = dict.fromkeys(FACTS) if self.found is None else self.found.facts()
        return {
            "change": self.change.name,
            "step_s": numbers.pop("step_s"),
            "tokens_per_s": numbers.pop("tokens_per_s"),
            "gain": self.gain,
            "gain_at_most": self.gain_at_most,
            "gain_known": self.is_known(present_gap),
            "cost": self.usd_per_h,
            "gain_per_usd_per_h": self.per_cost,
            "how": self.how,
            "gap": self.gap,
            "present_plan_step_s": self.present_step_s,
            "reason_if_none": self.reason or None,
            **numbers,
            "edits": dict(self.change.edits),
        }


def outcome(
    now: PlanNumbers, change: Change, cost: float | None, simulated: PlanNumbers | None, answer: Answer | None
) -> Outcome:
    """Result of a change with a cost in USD/h: the fastest of the present plan on it (`simulated`), its new plan (`answer`)
    and, for an addition that was evaluated, the present plan as it is today."""
    present_s = simulated.step_s if simulated else None
    planned = answer.found if answer is not None else None
    known = [(simulated, PRESENT_PLAN)] if simulated else []
    known += [(planned, PLANNED)] if planned else []
    known += [(now, UNUSED)] if change.adds and (simulated or answer) else []
    if not known:
        reason = "the time limit was reached" if answer is None else answer.reason
        return Outcome(change, None, None, cost, PLANNED if answer else PRESENT_PLAN, reason)
    best, how = _best(known, now.speed if change.adds else 0.0)
    how = PLANNED if planned and how != UNUSED else how
    best = replace(best, gap=None if planned is None else _gap(planned, best))
    return Outcome(change, best, best.gain_over(now), cost, how, present_step_s=present_s)


def _best(known: Sequence[tuple[PlanNumbers, str]], least: float) -> tuple[PlanNumbers, str]:
    """The fastest of some plans; of those that are about as fast (`NEAR`), and no slower than `least`, the one that gives up
    least."""
    is_known, most = max(one.rank for one, _ in known)
    near = [
        one
        for one in known
        if one[0].rank >= (is_known, most * (1 - NEAR)) and (one[0].speed >= least * (1 - SAME) or one[0].speed == most)
    ]
    return min(near, key=lambda one: (one[0].given_up, -one[0].speed))


def _gap(proved: PlanNumbers, plan: PlanNumbers) -> float | None:
    """Gap of a plan, by what is proved for the gap of another one; None where their speeds cannot be compared."""
    gain = plan.gain_over(proved)
    return None if proved.gap is None or gain is None else max(1 - (1 + gain) * (1 - proved.gap), 0.0)


def with_smaller_sizes(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes, where a larger size takes the plan of a smaller one that is faster: it leaves the rest unused."""
    best: dict[str, Outcome] = {}
    found: list[Outcome] = []
    for one in outcomes:
        smaller = best.get(one.change.family)
        if one.change.family and smaller is not None and _is_faster(smaller, one):
            assert smaller.found is not None
            gap = None if one.found is None else _gap(one.found, smaller.found)
            one = replace(one, found=replace(smaller.found, gap=gap), gain=smaller.gain, how=UNUSED, reason="")
        best[one.change.family] = one
        found.append(one)
    return found


def _is_faster(one: Outcome, other: Outcome) -> bool:
    return one.found is not None and (other.found is None or one.found.rank > other.found.rank)


def added_rent(change: Change, where: Topology, changed: Topology) -> float | None:
    """Rent that a change adds, in USD/h; None if a price is missing, or if a change of hardware does not change the rent."""
    before, after = cost_energy.rent(where.fleet), cost_energy.rent(changed.fleet)
    of_machines = any(path.startswith(("clusters.", "links")) for path, _ in change.edits)
    if before is None or after is None or (of_machines and before == after):
        return None
    return (after - before) / units.KINDS["price"][0]["USD/h"]
