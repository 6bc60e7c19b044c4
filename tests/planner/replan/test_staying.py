"""The old plan on the remaining nodes, with fewer replicas and no weights moved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.replan.staying import stayed
from sim.plan.plan import Plan
from tests import builders as make


def two_stages_of_two_replicas(**config: object) -> Plan:
    """Stage 0 on nodes 0 and 1, stage 1 on nodes 2 and 3; three and two microbatches."""
    return make.plan(make.fleet(make.cluster("c", 4)), pp=2, dp=2, microbatches=(3, 2), zero_stage=1, **config)


@pytest.mark.parametrize(("lost", "kept"), [(0, (1, 2)), (1, (0, 2)), (2, (0, 3)), (3, (0, 2))])
def test_each_stage_keeps_its_first_whole_replicas(lost, kept):
    """The remaining nodes are numbered anew."""
    before = two_stages_of_two_replicas()
    left = [node for node in range(4) if node != lost]
    came = {("c", new): ("c", old) for new, old in enumerate(left)}
    topology = replace(before.topology, fleet=make.fleet(make.cluster("c", 3)))
    plan = stayed(before, topology, came)
    assert plan is not None
    assert [came["c", device.node][1] for device in plan.placement] == list(kept)
    assert (plan.config.dp, plan.config.num_microbatches) == (1, (5,))
    assert plan.stages == before.stages
    assert plan.prediction is not None


def test_without_losses_the_plan_is_the_old_one():
    before = two_stages_of_two_replicas()
    came = {("c", node): ("c", node) for node in range(4)}
    plan = stayed(before, before.topology, came)
    assert (plan.config, plan.placement, plan.groups) == (before.config, before.placement, before.groups)


def test_a_replica_keeps_all_ranks_that_divide_its_samples():
    """Node 3 is lost, which divides the samples of the first replica with node 2 on stage 1; nodes 4 and 5 have those of the
    second."""
    before = make.plan(make.fleet(make.cluster("c", 6)), pp=2, dp=2, microbatches=(3, 2), stage_dp=(2, 4), microbatch_size=2)
    came = {("c", new): ("c", old) for new, old in enumerate((0, 1, 2, 4, 5))}
    plan = stayed(before, replace(before.topology, fleet=make.fleet(make.cluster("c", 5))), came)
    assert plan is not None
    assert [came["c", device.node][1] for device in plan.placement] == [0, 4, 5]
    assert (plan.config.dp, plan.config.stage_dp, plan.config.num_microbatches) == (1, (1, 2), (5,))


def test_a_stage_without_a_replica_leaves_no_plan():
    before = two_stages_of_two_replicas()
    came = {("c", 0): ("c", 0), ("c", 1): ("c", 1)}
    assert stayed(before, replace(before.topology, fleet=make.fleet(make.cluster("c", 2))), came) is None


@pytest.mark.parametrize(("lost", "kept"), [(4, (0, 1, 2, 3)), (3, (0, 1)), (1, (2, 3))])
def test_replicas_that_divide_experts_stay_or_go_together(lost, kept):
    """Four replicas on nodes 0 to 3, of which two each divide the experts; node 4 is idle."""
    shape = {"experts": 4, "experts_per_token": 1}
    before = make.plan(make.fleet(make.cluster("c", 5)), dp=4, ep=2, microbatches=4, shape=shape)
    came = {("c", new): ("c", old) for new, old in enumerate(node for node in range(5) if node != lost)}
    plan = stayed(before, replace(before.topology, fleet=make.fleet(make.cluster("c", 4))), came)
    assert plan is not None
    assert tuple(came["c", device.node][1] for device in plan.placement) == kept
    assert (plan.config.dp, plan.config.ep, sum(plan.config.num_microbatches)) == (len(kept), 2, 16)


def test_experts_that_all_nodes_divide_cannot_stay():
    shape = {"experts": 4, "experts_per_token": 1}
    before = make.plan(make.fleet(make.cluster("c", 4)), dp=4, ep=4, shape=shape)
    came = {("c", new): ("c", new) for new in range(3)}
    assert stayed(before, replace(before.topology, fleet=make.fleet(make.cluster("c", 3))), came) is None
