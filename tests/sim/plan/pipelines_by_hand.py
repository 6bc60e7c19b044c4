"""Plans of unlike pipelines that are made by hand from plans of alike replicas."""

from __future__ import annotations

from collections.abc import Sequence

from sim.hardware.cluster import Device, Fleet
from sim.plan.pipelines import PipelinesPlan, of_plans
from sim.plan.plan import MadeBy, Plan
from tests import builders as make


def nodes(many: int, devices: int = 1, bandwidth: float = 1e8) -> Fleet:
    """Nodes of quick devices, each with one NIC of `bandwidth` bytes a second."""
    return make.fleet(make.cluster(nodes=many, devices=devices, nics=(make.nic(bandwidth=bandwidth),)))


def entries(machines: Fleet, shapes: Sequence[dict[str, object]], **common: object) -> tuple[Plan, ...]:
    """A plan of alike replicas for each shape (tp, pp, dp, layers, microbatches), on the devices in order.

    A shape may have a placement of its own."""
    free, found = list(make.every_device(machines)), []
    for shape in shapes:
        plan = make.plan(machines, **({"placement": tuple(free)} | common | shape))  # type: ignore[arg-type]
        if "placement" not in shape:
            free = free[len(plan.placement) :]
        found.append(plan)
    return tuple(found)


def pipelines(machines: Fleet, shapes: Sequence[dict[str, object]], **common: object) -> PipelinesPlan:
    """The plan of unlike pipelines of `entries`."""
    return of_plans(entries(machines, shapes, **common), MadeBy("by hand", "1"))


def devices(*names: int) -> tuple[Device, ...]:
    """The first devices of nodes of cluster c."""
    return tuple(Device("c", node, 0) for node in names)
