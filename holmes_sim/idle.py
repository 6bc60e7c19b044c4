"""Idle devices of a plan: how many there are, and which clusters no network joins with those of the plan."""

from __future__ import annotations

from sim.hardware.transport import joint_nics
from sim.plan.plan import Plan


def idle_devices(plan: Plan) -> str:
    """How many devices are idle, as a sentence; empty where none is."""
    idle = plan.fleet.devices - plan.config.world_size
    return f"{idle:,} of {plan.fleet.devices:,} devices are idle." if idle else ""


def unjoined_clusters(plan: Plan) -> str:
    """Which clusters are idle because no network joins them with a cluster of the plan, as a sentence; empty where none is."""
    used = tuple(dict.fromkeys(device.cluster for device in plan.placement))
    others = [cluster.name for cluster in plan.fleet.clusters if cluster.name not in used]
    apart = [name for name in others if not any(joint_nics(plan.fleet, (one, name)) for one in used)]
    if not apart:
        return ""
    verb, them = ("is", "it") if len(apart) == 1 else ("are", "them")
    why = f"no link of a common NIC type joins {them} with {', '.join(used)} (`links` of the topology)"
    return f"{', '.join(apart)} {verb} idle: {why}."
