"""Plans with mixed stages that hold the bound are simulated."""

from __future__ import annotations

import pytest

from planner.bounds.mixed_deadline import MixedBound, mixed_bound
from planner.placement.simulation import step
from planner.request import Request
from planner.search.budgets import Budgets
from planner.search.incumbent import Incumbent
from planner.search.mixed import is_mixed, mixed_placements
from planner.search.mixed_trials import simulate_holders
from tests.planner.builders import SEARCHED_ONCE, on_two_clusters, shape
from tests.planner.search.searches import incumbent, simulated


def question() -> Request:
    """One layer and many microbatches, on devices of 2 and 1 GFLOP/s: a replica on each is fastest."""
    return on_two_clusters(layers=1, batch=120, wishes=SEARCHED_ONCE)


def begun(asked: Request, budgets: Budgets | None = None) -> Incumbent:
    return incumbent(asked, budgets, best=simulated(asked, shape(), ("b", 1)))


def bound_of(kept: Incumbent) -> MixedBound:
    return mixed_bound(kept.context, mixed_placements(kept.request), kept.cutoff, kept.limit)


def test_the_placement_with_the_least_bound_has_a_faster_plan():
    kept = begun(question())
    assert step(kept.best) == pytest.approx(9.4828, abs=1e-4)
    simulate_holders(kept, bound_of(kept))
    assert is_mixed(kept.best) and kept.best.config.num_microbatches == (78, 42)
    assert step(kept.best) == pytest.approx(4.0988, abs=1e-4)


@pytest.mark.parametrize("why", ["no placement is below the best step", "none may be tried"])
def test_nothing_is_simulated(why):
    kept = begun(question(), Budgets(mixed_holders=0) if why == "none may be tried" else None)
    simulate_holders(kept, bound_of(kept) if why == "none may be tried" else MixedBound(step(kept.best)))
    assert kept.context.simulated == [] and not is_mixed(kept.best)
