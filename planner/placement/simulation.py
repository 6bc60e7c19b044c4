"""Simulate candidate plans and choose the fastest: the prediction of a plan is the engine's, never an estimate."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from sim.analytic import plan_costs
from sim.engine.engine import simulate
from sim.engine.timeline import Timeline
from sim.errors import PlanError
from sim.kernels import memory
from sim.plan.plan import Plan
from sim.results.report import predict


def fits(plan: Plan) -> bool:
    """Whether the peak memory of every rank fits its device."""
    return all(peak <= limit for peak, limit in zip(memory.peak_memory(plan), memory.limits(plan), strict=True))


def simulate_plan(plan: Plan) -> Plan:
    """The plan with the prediction of its simulation."""
    return plan.annotated(prediction=predict(plan, simulate(plan)))


@dataclass(slots=True)
class FastestTimeline:
    """The timeline of the fastest plan simulated for a request, so that the winner is not simulated again."""

    plan: Plan | None = None
    timeline: Timeline | None = None

    def simulate(self, plan: Plan) -> Plan:
        """The plan with the prediction of its simulation; its timeline is kept if it is the fastest so far."""
        timeline = simulate(plan)
        predicted = plan.annotated(prediction=predict(plan, timeline))
        if self.plan is None or step(predicted) < step(self.plan):
            self.plan, self.timeline = predicted, timeline
        return predicted

    def of(self, plan: Plan) -> Timeline:
        """The timeline of a plan: the kept one if it is this plan's, else that of a simulation."""
        parts = ("topology", "workload", "config", "stages", "placement", "groups")
        if self.timeline is not None and all(getattr(plan, name) is getattr(self.plan, name) for name in parts):
            return self.timeline
        return simulate(plan)


def step(plan: Plan) -> float:
    """Predicted seconds of a step of a simulated plan."""
    assert plan.prediction is not None
    return plan.prediction.step_s


def fastest(candidates: Iterable[Callable[[], Plan]], ranked: int, simulated: int, deadline: float = math.inf) -> Plan | None:
    """The fastest of candidate plans that come in a rough order, best first; None where none fits.

    The first `ranked` candidates that can be built and fit the memory are sorted by their closed form; the engine simulates the
    first `simulated` of these, until the closed form of the next is no better than the best simulation. After the deadline, a
    time of `time.monotonic`, no more than one is built and one is simulated.
    """
    found: list[tuple[float, Plan]] = []
    for pair in islice(_built(candidates), ranked):
        found.append(pair)
        if time.monotonic() > deadline:
            break
    best: Plan | None = None
    for seconds, plan in sorted(found, key=lambda pair: pair[0])[:simulated]:
        if best is not None and (seconds >= step(best) or time.monotonic() > deadline):
            break
        now = simulate_plan(plan)
        if best is None or step(now) < step(best):
            best = now
    return best


def _built(candidates: Iterable[Callable[[], Plan]]) -> Iterator[tuple[float, Plan]]:
    for build in candidates:
        with suppress(PlanError):
            plan = build()
            if fits(plan):
                yield plan_costs.step_seconds(plan), plan
