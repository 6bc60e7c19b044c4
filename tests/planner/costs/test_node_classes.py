"""Node classes: costs of stages of one cluster, and which clusters hold a shape."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass, holds, leanest, node_classes
from planner.request import Request, Wishes
from planner.space.shape import Shape
from sim.hardware.cluster import Fabric
from sim.plan.parallel_config import BLOCK
from tests import builders as make
from tests.planner.builders import on_one_cluster, request, shape


def only(question: Request, one: Shape) -> NodeClass:
    """The class of the only cluster of a request."""
    (option,) = node_classes(PlanningContext(question), one)
    return option


def test_a_layer_alone_has_no_launches_for_each_rank():
    """Kernels and collectives take no time: 1 ms of launches, and 2 x 2 ms more with tp 2 in pipelines; backward 1.3 times."""
    spec = make.device(speed=1e30, memory_bandwidth=1e30, launch=1e-3, launch_per_rank=2e-3)
    option = only(on_one_cluster(nodes=2, devices=2, spec=spec, intra_node=make.wire(bandwidth=1e30)), shape(tp=2))
    assert option.layer_seconds == pytest.approx(2.3 * 5e-3)
    assert option.layer_seconds_alone == pytest.approx(2.3 * 1e-3)
    for role, layer in (("middle", 5e-3), ("only", 1e-3)):
        assert option.cost(role, 4).both - option.cost(role, 2).both == pytest.approx(2 * 2.3 * layer)


def test_the_least_reduction_is_half_an_all_reduce_where_zero_2_is_searched():
    """On a ring without latency, an all-reduce moves twice the bytes of a reduce-scatter."""
    question, reducing = on_one_cluster(devices=4), shape(dp=4, all_reduces=True)
    whole = only(question, reducing).cost("first", 2).reduce
    scattered = only(question, shape(dp=4)).cost("first", 2).reduce
    assert whole == pytest.approx(2 * scattered)
    assert only(question, reducing).least_reduce("first", 2, whole) == scattered
    pinned = replace(question, wishes=Wishes(zero_stage=1))
    assert only(pinned, reducing).least_reduce("first", 2, whole) == whole


def test_groups_that_are_searched_stand_alike_on_nodes():
    """Nodes of six devices: groups of 4 would lie on one node here and on two there; pinned they may."""
    question = request(make.fleet(make.cluster("a", nodes=4, devices=6)), make.model(experts=12, experts_per_token=1), 12)
    (six,) = question.clusters()
    sizes = {ep for ep in (1, 2, 3, 4, 6, 12) if holds(question, six, Shape(1, 12, 1, "none", "1f1b", 1, 1, ep=ep))}
    assert sizes == {1, 2, 3, 6, 12}
    pinned = replace(question, wishes=Wishes(ep=4))
    assert holds(pinned, six, Shape(1, 12, 1, "none", "1f1b", 1, 1, ep=4))
    unequal = replace(pinned, workload=replace(pinned.workload, global_batch_size=18))
    assert not holds(unequal, six, Shape(1, 12, 1, "none", "1f1b", 1, 1, ep=4)), "slow replicas may have fewer microbatches"
    narrow = replace(six, fabric=Fabric(nodes_per_leaf=2, oversubscription=4.0))
    assert not holds(question, narrow, Shape(1, 12, 1, "none", "1f1b", 1, 1, ep=12))
    assert holds(question, narrow, Shape(1, 12, 1, "none", "1f1b", 1, 1, ep=6))


def test_the_leanest_classes_hold_what_fits_under_any_zero_stage():
    context, one = PlanningContext(on_one_cluster(6, 8, nodes=4)), shape(dp=2)
    (holder,), (first,) = leanest(context, one, (1, 2, 3)), node_classes(context, one)
    alone = [node_classes(context, replace(one, zero_stage=stage))[0].memory for stage in (1, 2, 3)]
    for layers in (1, 6):
        assert holder.memory.held("middle", layers) == max(memory.held("middle", layers) for memory in alone)
    assert holder.shared is not first.shared
    assert leanest(context, one, (1, 1)) == node_classes(context, one)


def test_a_stage_recomputes_the_forwards_of_some_of_its_layers():
    """With its tensor-parallel collectives, in the backward."""
    question = on_one_cluster(nodes=2, devices=2)
    option = only(question, shape(tp=2, recompute=BLOCK))
    for role in ("first", "middle", "last", "only"):
        none, two = option.cost(role, 4), option.cost(role, 4, 2)
        assert two.backward - none.backward == pytest.approx(2 * option.layer[0])
        assert two._replace(backward=none.backward) == none
        assert only(question, shape(tp=2)).cost(role, 4) == none
        assert only(question, shape(tp=2, recompute="full")).cost(role, 4).backward == pytest.approx(
            option.cost(role, 4, 4).backward
        )
