"""Replicas that keep step, and those whose messages find other links than theirs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.analytic.equal_replicas import replica_classes
from sim.analytic.plan_costs import step_seconds
from sim.engine.engine import simulate
from sim.hardware.cluster import Fabric, Trunk
from sim.plan.plan import Plan
from tests import builders as make


def three_stages(count: int, nics: int, socket_link: float = 0.0, fabric: Fabric | None = None) -> Plan:
    """One replica for each device of a node, of three stages: on two nodes, and behind a slow trunk on a third one."""
    nic = replace(make.nic("ethernet", 1e9, nics), socket=0 if socket_link else None)
    a, b = (make.cluster(name, nodes, count, (nic,), fabric=fabric) for name, nodes in (("a", 2), ("b", 1)))
    a, b = (replace(one, node=replace(one.node, socket_link=socket_link)) for one in (a, b))
    return make.plan(make.fleet(a, b, trunks=(Trunk(("a", "b"), "ethernet", 1e9, 0.0),)), pp=3, dp=count, microbatches=6)


@pytest.mark.parametrize(
    ("count", "nics", "socket_link", "classes"),
    [
        (3, 1, 0.0, ((0, 1, 2),)), (3, 2, 0.0, ((0, 1), (2,))), (3, 3, 0.0, ((0, 1, 2),)), (3, 6, 0.0, ((0, 1, 2),)),
        (4, 2, 0.0, ((0, 1, 2, 3),)), (4, 2, 1e8, ((0, 1), (2, 3))), (4, 6, 0.0, ((0, 2), (1, 3))),
    ],
)  # fmt: skip
def test_replicas_with_a_nic_of_their_own_run_ahead_of_those_that_share_one(count, nics, socket_link, classes):
    """Two of three devices share the first of two NICs. Of six NICs, two are near to each second device of four. Where NICs are
    on the first CPU, messages of the devices of the other one cross the link between both."""
    plan = three_stages(count, nics, socket_link)
    assert tuple(sorted(replica_classes(plan))) == classes
    assert step_seconds(plan) <= simulate(plan).step_s * (1 + 1e-9)


def test_replicas_under_several_leaf_switches_are_apart_where_some_messages_leave_theirs():
    """Stages of three nodes of one device, two nodes to a leaf: the first replica's nodes are 0 and 3, of leaves 0 and 1."""
    nics = (make.nic("ethernet", 1e9),)
    narrow, wide = (make.cluster("c", 6, 1, nics, fabric=Fabric(2, ratio)) for ratio in (4.0, 1.0))
    of_leaves, open_ = (make.plan(make.fleet(one), pp=2, dp=3, microbatches=6) for one in (narrow, wide))
    assert replica_classes(open_) == ((0, 1, 2),)
    assert tuple(sorted(replica_classes(of_leaves))) == ((0,), (1,), (2,))
    assert step_seconds(of_leaves) <= simulate(of_leaves).step_s * (1 + 1e-9)
