"""Plans with mixed stages: which layouts there are, and the plans of them."""

from __future__ import annotations

import math

from planner.costs.context import PlanningContext
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
    assert sum(numbers.values()) == 12
    assert numbers["a"] > numbers["b"] > 0


def test_whole_stages_are_not_mixed():
    question = on_two_clusters()
    assert not is_mixed(simulated(question, shape(), ("a", 2), ("b", 2)))
