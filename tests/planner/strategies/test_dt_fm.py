"""The strategy dt_fm: even layers over groups that communicate least."""

from __future__ import annotations

from planner.request import Wishes
from tests.planner.builders import plan_of
from tests.planner.strategies.fleets import on


def test_data_parallel_groups_stay_in_a_cluster_and_layers_are_even():
    """Blind to compute: the slow cluster has as many layers."""
    plan = plan_of(on("two speeds", Wishes(tp=1, pp=2, dp=4, microbatch_size=1, recompute="none")), "dt_fm")
    assert [stage.layers for stage in plan.stages] == [6, 6]
    groups = [{plan.placement[rank].cluster for rank in group.ranks} for group in plan.groups if group.kind == "dp"]
    assert groups == [{"a"}, {"b"}] or groups == [{"b"}, {"a"}]
