"""Simulation of plans with mixed stages, and of those that hold their lower bound."""

from __future__ import annotations

from collections.abc import Iterable

from planner.bounds.mixed_deadline import MixedBound
from planner.search.crowded_links import move_layers
from planner.search.incumbent import Incumbent
from planner.search.mixed import plans_of
from sim.plan.plan import Plan
from sim.units import Seconds


def simulate_mixed(incumbent: Incumbent, found: Iterable[tuple[Seconds, Plan]]) -> None:
    """Simulate plans with mixed stages, the fastest on an idle network first, until some in a row are no faster."""
    since_improvement = 0
    for seconds, plan in found:
        over = since_improvement >= incumbent.budgets.mixed_tries or incumbent.limit.is_up()
        if seconds >= incumbent.cutoff or over:
            break
        since_improvement = 0 if incumbent.challenge(plan)[1] else since_improvement + 1
        incumbent.report("simulating mixed stages")


def simulate_holders(incumbent: Incumbent, bound: MixedBound) -> None:
    """Simulate plans of the placements with the least bounds, which the search may have left out: it tries the usual microbatch
    sizes, and the placements with the least estimates. Then layers of a faster plan are moved."""
    placements, best = bound.holders[: incumbent.budgets.mixed_holders], incumbent.best
    if placements and not incumbent.limit.is_up():
        simulate_mixed(incumbent, plans_of(incumbent.context, placements, "certified", incumbent.limit, incumbent.target))
        if incumbent.best is not best:
            move_layers(incumbent)
