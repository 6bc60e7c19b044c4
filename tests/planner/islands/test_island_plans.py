"""Plans of islands are found once, and moved to equal clusters."""

from __future__ import annotations

import pytest

from planner.islands.island_plans import IslandPlans, alike
from planner.request import Wishes
from planner.time_limit import TimeLimit
from sim.errors import Infeasible
from tests.planner.islands.fleets import request, slow_trunk, three_clusters


def test_an_equal_cluster_has_the_same_plan_on_its_own_devices():
    lines: list[str] = []
    plans = IslandPlans(request(slow_trunk()), TimeLimit(20.0), lines.append, 2)
    east, west = plans.plan(("east",), 16), plans.plan(("west",), 16)
    assert plans.runs == 1  # one search
    assert plans.plan(("east",), 16) is east
    assert east.config == west.config
    assert east.prediction == west.prediction
    assert east.workload.global_batch_size == 16
    assert {device.cluster for device in west.placement} == {"west"}
    assert lines and all(line.startswith("east, batch 16: ") for line in lines)


def test_unlike_clusters_are_planned_each():
    here = request(three_clusters())
    names = [cluster.name for cluster in here.clusters()]
    assert len({alike(here, (name,)) for name in names}) == len(names)


def test_an_island_without_a_plan_is_infeasible_each_time():
    plans = IslandPlans(request(slow_trunk(), Wishes(dp=4)), TimeLimit(20.0), lambda text: None, 2)
    for name in ("east", "west", "east"):
        with pytest.raises(Infeasible, match="dp 4"):
            plans.plan((name,), 16)
