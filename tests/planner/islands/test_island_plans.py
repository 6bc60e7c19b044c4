"""Plans of islands are found once, and moved to equal clusters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.islands.island_plans import IslandPlans, alike, with_batches, with_finer_batches
from planner.placement.simulation import step
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


def test_the_batch_of_the_fastest_islands_is_divided_in_parts_of_a_unit():
    here = request(three_clusters())
    here = replace(here, workload=replace(here.workload, global_batch_size=160))  # a unit of 4 sequences
    plans, every = IslandPlans(here, TimeLimit(60.0), lambda text: None, 2), (("ib",), ("roce",), ("eth",))
    tried = with_batches(every, plans) | with_batches(every[:2], plans)
    assert [batches for _, batches in tried] == [(68, 68, 24), (56, 56, 48), (56, 52, 52), (80, 80)]
    (key, islands), *others = with_finer_batches(tried, plans).items()
    assert (key, others) == ((every, (54, 54, 52)), [])
    assert max(map(step, islands)) < 0.98 * min(max(map(step, found)) for found in tried.values())


def test_equal_islands_are_not_divided_in_parts_of_a_unit():
    plans = IslandPlans(request(slow_trunk()), TimeLimit(20.0), lambda text: None, 2)
    tried = with_batches((("east",), ("west",)), plans)
    assert with_finer_batches(tried, plans) == {}
