"""The first plan: from quick estimates to simulated pipelines."""

from __future__ import annotations

import math

import pytest

from holmes_sim import commands
from planner.placement.simulation import fits, step
from planner.request import Request, Wishes
from planner.search.first_plan import find_first_plan
from planner.space.shapes import searched
from sim.formats.edits import edited
from sim.kernels import memory
from tests import builders as make
from tests.more import more
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


@more
def test_a_plan_on_one_site_is_not_missed_where_the_trunk_is_slow():
    """With 10 Gbit/s between two sites, a plan on one of them takes 15.45 s. Replicas share the trunk, so that pipelines across
    it take longer than estimated: the fastest of those that the estimates choose takes 18 s."""
    topology = edited(commands.load("two-sites-trunk"), {"links[0].bandwidth": "10 Gbit/s", "workload.global_batch_size": 384})
    wishes = Wishes(tp=2, microbatch_size=2, recompute="none", schedule="1f1b")
    kept = incumbent(Request(topology, commands.workload_of(topology), wishes, math.inf))
    find_first_plan(kept, list(searched(kept.request)))
    assert kept.best is not None
    assert step(kept.best) <= 15.8
