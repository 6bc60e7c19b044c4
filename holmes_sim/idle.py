"""Idle devices of a plan: how many there are, and why clusters are idle."""

from __future__ import annotations

from collections.abc import Iterator

from planner.target import ANY
from sim.hardware.cluster import Cluster
from sim.hardware.transport import joint_nics
from sim.plan.plan import Plan


def idle_devices(plan: Plan) -> str:
    """How many devices are idle, as a sentence; empty where none is."""
    idle = plan.fleet.devices - plan.config.world_size
    return f"{idle:,} of {plan.fleet.devices:,} devices are idle." if idle else ""


def idle_clusters(plan: Plan) -> Iterator[str]:
    """Which clusters are idle and why, a sentence for each reason: the precision, the network, or a slower step."""
    used = tuple(dict.fromkeys(device.cluster for device in plan.placement))
    others = [cluster for cluster in plan.fleet.clusters if cluster.name not in used]
    reasons = {cluster.name: _reason(plan, cluster, used) for cluster in others}
    for reason in dict.fromkeys(reasons.values()):
        names = [name for name, why in reasons.items() if why == reason]
        yield f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} idle: {reason}."


def _reason(plan: Plan, cluster: Cluster, used: tuple[str, ...]) -> str:
    """Why no rank is on a cluster."""
    device, precision = cluster.node.device, plan.workload.precision
    if not device.runs(precision):
        return f"{device.name} has no {precision}"
    if not any(joint_nics(plan.fleet, (one, cluster.name)) for one in used):
        return f"no link of a common NIC type leads to {', '.join(used)} (`links` of the topology)"
    target = plan.certificate.target if plan.certificate is not None else ""
    able = f" and that {'some framework' if target == ANY else target} can run" if target else ""
    return f"no plan that uses it{able} was found to be faster"
