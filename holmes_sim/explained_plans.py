"""A plan with its explanation as one document, for programs: why other layouts are slower, and what each requirement costs."""

from __future__ import annotations

import math
from typing import Any

from holmes_sim.conflicts import Price
from holmes_sim.results import Planned
from planner.diagnosis.reasons import Verdict
from sim.results.explain import Explanation

FORMAT = "holmes-sim/explained-plan/1"
SHAPE = ("tp", "dp", "cp", "ep", "etp", "microbatch_size", "recompute", "schedule", "vpp", "zero_stage", "zero_shard_size")
"""Fields of a shape that a verdict has; the others are facts of the software, or follow from the fleet."""


def facts(answer: Planned, explanation: Explanation) -> dict[str, Any]:
    """The plan as in plan.json, the explanation of its step, verdicts on layouts (its own is among them), and requirements.

    Format holmes-sim/explained-plan/1."""
    return {
        "format": FORMAT,
        "plan": answer.plan_facts(),
        "explanation": explanation.facts(),
        "verdicts": [_verdict(verdict) for verdict in answer.verdicts],
        "requirements": [_requirement(price) for price in answer.prices],
    }


def _verdict(found: Verdict) -> dict[str, Any]:
    shape = {name: getattr(found.shape, name) for name in SHAPE}
    return shape | {"estimated_step_s": None if math.isinf(found.seconds) else found.seconds, "why": found.why}


def _requirement(price: Price) -> dict[str, Any]:
    return {
        "requirement": price.requirement,
        "step_without_it_s": price.step_s,
        "lower_bound_without_it_s": price.bound_s,
        "reason_if_none": price.reason or None,
    }
