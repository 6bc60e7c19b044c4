"""Plans on one cluster whose nodes are under leaf switches."""

from __future__ import annotations

from planner.placement.ranks import assemble
from planner.request import Request
from planner.space.shape import Shape
from planner.space.shapes import slot
from sim.hardware.cluster import Fabric
from sim.plan.plan import Plan
from tests import builders as make
from tests.planner.builders import request


def on_leaves(nodes: int, fabric: Fabric | None, hidden: int = 768, bandwidth: float = 1e10, batch: int = 48) -> Request:
    """A request on one cluster of two devices a node."""
    machines = make.fleet(make.cluster("c", nodes, 2, (make.nic("infiniband", bandwidth),), fabric=fabric))
    return request(machines, make.model(12, hidden), batch)


def shape(dp: int, tp: int = 2, zero: int = 1, schedule: str = "1f1b") -> Shape:
    return Shape(tp, dp, 1, "none", schedule, 1, zero)


def in_order(question: Request, shape: Shape, pp: int) -> Plan:
    cluster = question.topology.fleet.cluster("c")
    devices = (device for index in range(pp * shape.slots) for device in slot(cluster, shape.tp, index))
    return assemble(question, shape, (12 // pp,) * pp, tuple(devices), "by hand")


def leaves_of(plan: Plan) -> list[int]:
    """The leaf of every slot, stage by stage."""
    return [
        device.node // plan.fleet.cluster(device.cluster).fabric.nodes_per_leaf for device in plan.placement[:: plan.config.tp]
    ]
