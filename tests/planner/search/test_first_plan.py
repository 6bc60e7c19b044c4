"""The first plan: from quick estimates to simulated pipelines."""

from __future__ import annotations

import pytest

from planner.placement.simulation import fits, step
from planner.search.first_plan import find_first_plan
from planner.space.shapes import searched
from sim.kernels import memory
from tests import builders as make
from tests.planner.builders import SEARCHED_ONCE, on_one_cluster, plan_of, random_request
from tests.planner.search.searches import incumbent


@pytest.mark.parametrize("seed", [0, 3, 5, 7, 9, 13, 17, 19])
def test_the_first_plan_of_a_small_fleet_is_within_a_tenth_of_the_best(seed):
    question = random_request(seed)
    kept = incumbent(question)
    find_first_plan(kept, list(searched(question)))
    assert kept.best is not None and fits(kept.best)
    assert step(kept.best) <= 1.1 * step(plan_of(question))
    assert kept.cutoff == min(step(plan) for plan in kept.context.simulated)


def test_nothing_that_fits_means_no_plan():
    question = on_one_cluster(nodes=2, spec=make.device(memory=memory.OUTSIDE), wishes=SEARCHED_ONCE)
    kept = incumbent(question)
    find_first_plan(kept, list(searched(question)))
    assert kept.best is None
