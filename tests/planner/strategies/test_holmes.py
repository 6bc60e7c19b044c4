"""The strategy holmes: layers by the speed of each environment, data-parallel groups inside one environment."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.request import Wishes
from planner.strategies.holmes import layers_by_speed
from tests import builders as make
from tests.planner.builders import plan_of
from tests.planner.strategies.fleets import on


@pytest.mark.parametrize(
    ("speeds", "layers", "split"),
    [
        ([197, 160], 48, [27, 21]),  # alpha 1.05; 26 | 22 with alpha 1, as in the scripts released with the paper
        ([197, 160], 30, [17, 13]),  # 16 | 14 with alpha 1
        ([1, 1], 30, [15, 15]),
        ([160, 197], 48, [22, 26]),
        ([1, 1, 1], 30, [10, 10, 10]),
        ([3, 2, 1], 12, [6, 4, 2]),
        ([5.0], 7, [7]),
    ],
)
def test_holmes_gives_layers_by_speed(speeds, layers, split):
    """floor(1.05 S(i) / sum S x layers) for all but the last."""
    assert layers_by_speed(speeds, layers) == split


def test_holmes_gives_the_faster_environment_more_layers_and_uses_all_machines():
    plan = plan_of(on("two speeds", Wishes(tp=1, dp=4)), "holmes")
    assert plan.config.world_size == 8
    by_cluster = {
        plan.placement[plan.config.rank(0, 0, pp_rank)].cluster: stage.layers for pp_rank, stage in enumerate(plan.stages)
    }
    assert by_cluster["a"] > by_cluster["b"]
    assert sum(by_cluster.values()) == 12


def test_holmes_builds_no_layout_that_exceeds_the_memory(monkeypatch):
    """Devices of 1 MB: there is no plan, and none is built."""
    monkeypatch.setattr("planner.strategies.holmes.build", lambda *_: pytest.fail("built"))
    question = on("two speeds", Wishes(tp=1, dp=4))
    small = replace(make.device("small", 1e12, 1e11), memory=1e6)
    clusters = [replace(one, node=replace(one.node, device=small)) for one in question.topology.fleet.clusters]
    fleet = replace(question.topology.fleet, clusters=tuple(clusters))
    assert plan_of(replace(question, topology=replace(question.topology, fleet=fleet)), "holmes") is None


def test_holmes_keeps_data_parallel_groups_in_one_environment():
    plan = plan_of(on("infiniband and roce", Wishes(tp=1, dp=4)), "holmes")
    nics = {(group.nic, *{plan.placement[rank].cluster for rank in group.ranks}) for group in plan.groups if group.kind == "dp"}
    assert nics == {("infiniband", "a"), ("roce", "b")}
