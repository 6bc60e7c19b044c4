"""The strategy dt_fm: even layers over groups that communicate least."""

from __future__ import annotations

import pytest

from planner import strategies
from planner.costs.context import PlanningContext
from planner.request import Wishes
from sim.errors import Infeasible
from tests import builders as make
from tests.planner import outside_torch
from tests.planner.builders import on_one_cluster, plan_of
from tests.planner.strategies.fleets import on


def test_data_parallel_groups_stay_in_a_cluster_and_layers_are_even():
    """Blind to compute: the slow cluster has as many layers."""
    plan = plan_of(on("two speeds", Wishes(tp=1, pp=2, dp=4, microbatch_size=1, recompute="none")), "dt_fm")
    assert [stage.layers for stage in plan.stages] == [6, 6]
    groups = [{plan.placement[rank].cluster for rank in group.ranks} for group in plan.groups if group.kind == "dp"]
    assert groups == [{"a"}, {"b"}] or groups == [{"b"}, {"a"}]


def placed(name: str, tp: int = 1, **degrees: int) -> tuple[list[str], list[int]]:
    """Devices as "a0.1" (cluster, node and index), in the order of ranks, and the layers of the stages, of the plan."""
    plan = plan_of(on(name, Wishes(tp=tp, microbatch_size=1, recompute="none", **degrees)), "dt_fm")
    return [f"{d.cluster}{d.node}.{d.index}" for d in plan.placement], [stage.layers for stage in plan.stages]


def test_layers_that_stages_cannot_share_evenly_differ_by_one():
    """12 layers on five stages; all five are on the three nodes of one cluster, neighbours side by side."""
    assert placed("odd numbers", dp=1, pp=5) == (["a0.0", "a0.1", "a1.0", "a1.1", "a2.0"], [2, 2, 3, 2, 3])


def test_devices_that_do_not_fill_a_group_are_left_out():
    """Nine devices in groups of two: four stages, and of the node of three devices one is idle."""
    devices, layers = placed("odd numbers", dp=2)
    assert devices == ["a0.0", "a0.1", "a1.0", "a1.1", "a2.0", "a2.1", "b0.0", "b0.1"]
    assert layers == [3, 3, 3, 3]


def test_groups_are_dealt_over_clusters_that_have_too_few_devices_for_one():
    """Three clusters of two devices, dp 3: each stage has one of each, and its replicas send inside their nodes."""
    devices, _ = placed("three clusters", dp=3, pp=2)
    assert devices == ["a0.0", "b0.0", "c0.0", "a0.1", "b0.1", "c0.1"]


def test_a_tensor_parallel_group_is_one_unit_inside_a_node():
    devices, _ = placed("two speeds", tp=2, dp=2)
    assert devices == [f"{name}0.{index}" for name in "ab" for index in range(4)]


def test_no_memory_is_no_plan():
    question = on_one_cluster(nodes=2, spec=make.device(memory=outside_torch.CONTEXT))
    with pytest.raises(Infeasible, match="dt_fm: no layout of even layers over balanced groups of devices fits the memory"):
        strategies.get("dt_fm").plan(question, PlanningContext(question))
