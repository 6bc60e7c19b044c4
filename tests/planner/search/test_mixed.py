"""Plans with mixed stages: which layouts there are, and the plans of them."""

from __future__ import annotations

import math

import pytest

from planner.costs.context import PlanningContext
from planner.placement.ranks import assemble
from planner.placement.simulation import simulate_plan, step
from planner.request import Wishes
from planner.search.mixed import is_mixed, mixed, mixed_placements
from planner.time_limit import TimeLimit
from tests.planner.builders import SEARCHED_ONCE, on_one_cluster, on_two_clusters, shape
from tests.planner.search.searches import simulated


def test_one_cluster_has_no_mixed_stages():
    question = on_one_cluster(nodes=3)
    assert list(mixed_placements(question)) == []
    assert mixed(PlanningContext(question), "by hand", TimeLimit(math.inf)) == []


def test_replicas_on_two_speeds_share_the_batch():
    """Devices of 2 and 1 GFLOP/s: of twelve microbatches about eight are on the fast one; the fastest plan is first."""
    question = on_two_clusters(layers=1, batch=12, wishes=SEARCHED_ONCE)
    found = mixed(PlanningContext(question), "by hand", TimeLimit(math.inf))
    assert found and all(is_mixed(plan) for _, plan in found)
    assert [seconds for seconds, _ in found] == sorted(seconds for seconds, _ in found)
    numbers = dict(zip((d.cluster for d in found[0][1].placement), found[0][1].config.num_microbatches, strict=True))
    assert numbers == {"a": 8, "b": 4}


def test_whole_stages_are_not_mixed():
    question = on_two_clusters()
    assert not is_mixed(simulated(question, shape(), ("a", 2), ("b", 2)))


def test_no_other_share_of_the_batch_is_faster():
    """All eleven shares of twelve microbatches, simulated: the assigned one is the fastest."""
    question = on_two_clusters(layers=1, batch=12, wishes=SEARCHED_ONCE)
    _, plan = mixed(PlanningContext(question), "by hand", TimeLimit(math.inf))[0]
    one = shape(dp=2, schedule=plan.config.schedule, zero_stage=plan.config.zero_stage)
    seconds = {
        n: step(simulate_plan(assemble(question, one, (1,), plan.placement, "by hand", (n, 12 - n)))) for n in range(1, 12)
    }
    assert plan.placement[0].cluster == "a"
    assert min(seconds, key=seconds.__getitem__) == plan.config.num_microbatches[0] == 8


def test_slots_are_cut_in_order_of_the_clusters_or_replica_by_replica():
    """Three devices each, dp 2, pp 3: the middle stage is on both clusters, or each cluster has a whole replica."""
    question = on_two_clusters(nodes=3, batch=12, wishes=Wishes(tp=1, dp=2, pp=3, microbatch_size=1, recompute="none"))
    found = [
        [[(run.cluster.name, run.first, run.count) for run in stage] for stage in stages]
        for _, stages in mixed_placements(question)
    ]
    assert found == [
        [[("a", 0, 2)], [("a", 2, 1), ("b", 0, 1)], [("b", 1, 2)]],
        [[("b", 0, 2)], [("b", 2, 1), ("a", 0, 1)], [("a", 1, 2)]],
        [[("a", stage, 1), ("b", stage, 1)] for stage in range(3)],
    ]


@pytest.mark.parametrize(("seconds", "below"), [(0.0, math.inf), (math.inf, 1e-3)])
def test_nothing_is_planned_after_the_time_limit_or_below_what_the_work_takes(seconds: float, below: float):
    """The work of twelve microbatches takes more than 1 ms on both devices together."""
    question = on_two_clusters(layers=1, batch=12, wishes=SEARCHED_ONCE)
    assert mixed(PlanningContext(question), "by hand", TimeLimit(seconds), below) == []
