"""Plans are played by the engine before they are promised: its number decides, and is what the plan promises."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sim import memory
from sim.engine import simulate
from sim.plan import Plan
from sim.report import predict


def fits(plan: Plan) -> bool:
    """Whether every rank's bytes fit its device."""
    return all(peak <= limit for peak, limit in zip(memory.peak_memory(plan), memory.limits(plan), strict=True))


def play(plan: Plan) -> Plan:
    """The plan with the prediction that its simulation gives."""
    return replace(plan, prediction=predict(plan, simulate(plan)))


def step(plan: Plan) -> float:
    """Promised seconds of a step of a played plan."""
    assert plan.prediction is not None
    return plan.prediction.step_s


def fastest(candidates: Iterable[tuple[float, Plan]], most: int) -> Plan | None:
    """Play candidates (closed-form seconds, plan), the most promising first, until none left can win or `most` are played."""
    best: Plan | None = None
    for seconds, plan in sorted(candidates, key=lambda pair: pair[0])[:most]:
        if best is not None and seconds >= step(best):
            break
        played = play(plan)
        if best is None or step(played) < step(best):
            best = played
    return best
