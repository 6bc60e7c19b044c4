"""Simulation of candidate plans, and the choice of the fastest. The prediction of a plan is always simulated."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from planner.time_limit import TimeLimit
from sim.analytic import plan_costs
from sim.engine.abandonment import Abandoned
from sim.engine.engine import simulate, simulate_up_to
from sim.engine.timeline import Timeline
from sim.errors import NoRoute, NotDefined
from sim.hardware.refusals import refused
from sim.kernels import memory, offload
from sim.plan.plan import Plan
from sim.results.report import predict
from sim.units import Seconds

RANKS = 200_000
"""Number of ranks of all plans that `fastest` builds, after the first plan that fits (a guess). More take longer: building and
evaluating 100,000 ranks takes seconds."""


def fits(plan: Plan) -> bool:
    """Whether the software runs the plan, and the peak memory of every rank fits its device, and what hosts keep their memory,
    beside the head-room."""
    free, config = 1.0 - plan.topology.memory_headroom, plan.config
    behind = config.num_stages - 1 - plan.head_stage
    if refused(config.refuses, behind, config.schedule, min(config.num_microbatches), config.pp):
        return False
    if offload.over_host_memory(plan) is not None:
        return False
    return all(peak <= limit * free for peak, limit in zip(memory.peak_memory(plan), memory.limits(plan), strict=True))


def simulate_plan(plan: Plan) -> Plan:
    """The plan with the prediction of its simulation."""
    return plan.annotated(prediction=predict(plan, simulate(plan)))


@dataclass(slots=True)
class FastestTimeline:
    """The timelines of the fastest and of the latest plan simulated for a request, so that they are not simulated again.

    `wall_s` is how long the simulation of the fastest one took."""

    plan: Plan | None = None
    timeline: Timeline | None = None
    wall_s: Seconds = 0.0
    _latest: tuple[Plan, Timeline] | None = None

    def simulate(self, plan: Plan) -> Plan:
        """The plan with the prediction of its simulation; its timeline is kept if it is the fastest so far."""
        if self.plan is not None and _is_same(self.plan, plan):
            return self.plan
        predicted = self.simulate_up_to(plan, math.inf)
        assert isinstance(predicted, Plan)
        return predicted

    def simulate_up_to(self, plan: Plan, limit: Seconds) -> Plan | Abandoned:
        """As `simulate`, unless the simulation is abandoned because the step is proved to be above `limit`."""
        begun = time.perf_counter()
        timeline = simulate_up_to(plan, limit)
        if isinstance(timeline, Abandoned):
            return timeline
        predicted = plan.annotated(prediction=predict(plan, timeline))
        self._latest = predicted, timeline
        if self.plan is None or step(predicted) < step(self.plan):
            self.plan, self.timeline, self.wall_s = predicted, timeline, time.perf_counter() - begun
        return predicted

    def of(self, plan: Plan) -> Timeline:
        """The timeline of a plan: a cached one if it is of this plan, else that of a new simulation."""
        if self._latest is not None and _is_same(self._latest[0], plan):
            return self._latest[1]
        is_fastest = self.timeline is not None and self.plan is not None and _is_same(self.plan, plan)
        return self.timeline if self.timeline is not None and is_fastest else simulate(plan)


def _is_same(one: Plan, other: Plan) -> bool:
    """Whether two plans have the same objects for all that their timelines depend on."""
    parts = ("topology", "workload", "config", "stages", "placement", "groups")
    return all(getattr(one, name) is getattr(other, name) for name in parts)


def step(plan: Plan) -> float:
    """Predicted seconds of a step of a simulated plan."""
    assert plan.prediction is not None
    return plan.prediction.step_s


def fastest(candidates: Iterable[Callable[[], Plan | None]], ranked: int, simulated: int, limit: TimeLimit) -> Plan | None:
    """The fastest of candidate plans that are roughly sorted, the best first; None where none fits.

    A builder may return None. The first `ranked` candidates that can be built and fit the memory, of `RANKS` ranks in all, are
    sorted by their closed form; the engine simulates the first `simulated` of these, until the closed form of the next is not
    below the best simulated step. After the time limit, at most one candidate is built and one is simulated."""
    found, ranks = list[tuple[float, Plan]](), 0
    for pair in islice(_built(candidates), ranked):
        found.append(pair)
        ranks += pair[1].config.world_size
        if ranks >= RANKS or limit.is_up():
            break
    best: Plan | None = None
    for seconds, plan in sorted(found, key=lambda pair: pair[0])[:simulated]:
        if best is not None and (seconds >= step(best) or limit.is_up()):
            break
        timeline = simulate_up_to(plan, math.inf if best is None else step(best))
        if isinstance(timeline, Timeline) and (best is None or timeline.step_s < step(best)):
            best = plan.annotated(prediction=predict(plan, timeline))
    return best


def _built(candidates: Iterable[Callable[[], Plan | None]]) -> Iterator[tuple[float, Plan]]:
    for build in candidates:
        with suppress(NoRoute, NotDefined):
            plan = build()
            if plan is not None and fits(plan):
                yield plan_costs.step_seconds(plan), plan
