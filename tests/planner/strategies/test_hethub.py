"""The strategy hethub: stages of one device type, layers by their speed."""

from __future__ import annotations

from planner.request import Wishes
from tests.planner.builders import plan_of
from tests.planner.strategies.fleets import on


def test_hethub_never_mixes_types_in_a_stage_and_gives_the_faster_more_layers():
    plan = plan_of(on("two speeds", Wishes(tp=1)), "hethub")
    width = plan.config.tp * plan.config.dp
    types = [{device.cluster for device in plan.placement[i : i + width]} for i in range(0, len(plan.placement), width)]
    assert all(len(kinds) == 1 for kinds in types)
    layers = {name: sum(s.layers for s, kinds in zip(plan.stages, types, strict=True) if kinds == {name}) for name in "ab"}
    assert layers["a"] > layers["b"] > 0
    assert plan.config.world_size == 8


def test_a_stage_of_hethub_may_stand_on_two_clusters_of_one_type():
    """NICs are no level of its search."""
    plan = plan_of(on("infiniband and roce", Wishes(tp=1, dp=8, microbatch_size=1)), "hethub")
    assert {device.cluster for device in plan.placement} == {"a", "b"}
    assert plan.config.pp == 1
