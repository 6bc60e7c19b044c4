"""The fastest plan of a search so far: simulated, and replaced by each plan that is simulated to be faster."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from planner.costs.context import PlanningContext
from planner.placement.simulation import fits, step
from planner.request import Request
from planner.search.budgets import Budgets
from planner.time_limit import TimeLimit
from sim.analytic import plan_costs
from sim.plan.plan import Plan
from sim.units import Seconds


@dataclass(slots=True)
class FastestPlan:
    """The search of one request. best: the fastest plan so far; plain: the latest one without virtual stages; simulated: the
    number of simulations."""

    request: Request
    context: PlanningContext
    best: Plan | None
    limit: TimeLimit
    simulated: int = 0
    plain: Plan | None = field(init=False)

    def __post_init__(self) -> None:
        self.plain = self.best if self.best is not None and self.best.config.vpp == 1 else None

    @property
    def cutoff(self) -> Seconds:
        """Steps from which on a plan is not worth finding."""
        return math.inf if self.best is None else step(self.best) * (1 - Budgets().target_gap)

    def keep(self, plan: Plan) -> Seconds:
        """Simulate a plan if it fits and its closed form is below the best step, and keep it if it is faster.

        Returns a lower bound on its step, infinite where it is no plan of the request."""
        least = math.inf if self.best is None else step(self.best)
        if not fits(plan) or self.request.refuses(plan):
            return math.inf
        if (seconds := plan_costs.step_seconds(plan)) >= least:
            return seconds
        self.simulated += 1
        simulated = self.context.timelines.simulate_up_to(plan, least)
        if not isinstance(simulated, Plan):
            return least
        if step(simulated) < least:
            self.best = simulated
            self.plain = simulated if simulated.config.vpp == 1 else self.plain
        return step(simulated)
