"""Ranks that are kept: which replicas remain, and which plans move one."""

from __future__ import annotations

from dataclasses import replace

from planner.kept_ranks import KeptRanks
from sim.hardware.cluster import Device
from sim.plan.plan import Plan
from tests import builders as make


def plan_of(nodes: int = 6, **config: object) -> Plan:
    """Stage 0 on nodes 0, 1 and 2, stage 1 on nodes 3, 4 and 5."""
    return make.plan(make.fleet(make.cluster("c", nodes, 1)), **{"pp": 2, "dp": 3, "microbatches": 2} | config)


def kept(plan: Plan, lost: tuple[int, ...] = ()) -> KeptRanks:
    devices = tuple(None if device.node in lost else device for device in plan.placement)
    return KeptRanks("old.json", plan.workload.model.name, plan.config, plan.stages, devices)


def nodes(placement: tuple[Device, ...]) -> list[int]:
    return [device.node for device in placement]


def test_a_plan_keeps_its_own_ranks_and_those_with_fewer_replicas() -> None:
    plan = plan_of()
    assert kept(plan).fault(plan) == ""
    assert kept(plan).fault(plan_of(dp=2, placement=(*plan.placement[:2], *plan.placement[3:5]))) == ""


def test_a_rank_that_lacks_weights_moves() -> None:
    plan = plan_of()
    moved = replace(plan, placement=(*plan.placement[3:], *plan.placement[:3]))
    assert kept(plan).fault(moved) == "6 of 6 ranks that move: c/node3/dev0 lacks their weights in old.json"
    assert kept(plan, lost=(0,)).fault(plan) == "1 of 6 ranks that move: c/node0/dev0 lacks their weights in old.json"
    assert kept(plan).fault(plan_of(layers=(1, 3))) == "3 of 6 ranks that move: c/node3/dev0 lacks their weights in old.json"


def test_the_first_replicas_that_remain_and_those_of_whole_pipelines() -> None:
    """Node 1 is lost: of stage 0 replicas 0 and 2 remain. The third whole pipeline is on nodes 2 and 5."""
    found = [(dp, nodes(placement)) for dp, placement in kept(plan_of(), lost=(1,)).placements()]
    assert found == [(2, [0, 2, 3, 4]), (2, [0, 2, 3, 5]), (1, [0, 3])]
    assert list(kept(plan_of(), lost=(0, 1, 2)).placements()) == []


def test_with_fewer_replicas_each_has_more_microbatches() -> None:
    config = kept(plan_of(zero_shard_size=3)).with_replicas(2, 7)
    assert (config.dp, config.num_microbatches, config.zero_shard_size) == (2, (4, 3), None)
    unlike = kept(plan_of(9, stage_dp=(3, 6), microbatch_size=2)).with_replicas(2, 7)
    assert (unlike.dp, unlike.stage_dp) == (2, (2, 4))
