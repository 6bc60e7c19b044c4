"""Schema of the ranks that a requirement keeps where they are: a plan's file, or the facts of the plan that decide it."""

from __future__ import annotations

from typing import Any

from sim.errors import OptionError
from sim.formats.config_facts import ConfigFacts, config_facts
from sim.formats.fields import StrictModel
from sim.formats.stage_facts import StageFacts, stage_facts
from sim.hardware.cluster import Device, Fleet
from sim.plan.plan import Plan


class KeptPlan(StrictModel):
    """The configuration, stages and devices of a plan whose ranks are kept; `null` is a rank whose device is gone."""

    name: str
    model: str
    config: ConfigFacts
    stages: list[StageFacts]
    placement: list[str | None]


class KeptRanks(StrictModel):
    """Ranks keep the weights that a plan has on their devices: layers, tensor-parallel part and experts. Other devices are
    idle, and there may be fewer replicas. `keep`: file of the plan; in the topology of a plan, the facts of it that decide."""

    keep: str | KeptPlan


def kept_facts(plan: Plan, name: str, fleet: Fleet) -> dict[str, Any]:
    """The facts of a plan, with its devices named as in a fleet of today: nodes are found by their hosts.

    Raises OptionError where the fleet lacks a device of the plan, or has one of another type there."""
    return {
        "name": name,
        "model": plan.workload.model.name,
        "config": config_facts(plan.config, plan.workload.routing),
        "stages": [stage_facts(stage) for stage in plan.stages],
        "placement": [str(_today(device, plan.fleet, fleet, rank, name)) for rank, device in enumerate(plan.placement)],
    }


def _today(device: Device, before: Fleet, fleet: Fleet, rank: int, name: str) -> Device:
    """The device under its name in a fleet of today."""
    own = before.cluster(device.cluster)
    hosts, kind, cure = own.hosts_of(device.node), own.node.device.name, "give a plan of this topology"
    for cluster in fleet.clusters:
        for node in range(cluster.nodes) if cluster.name == device.cluster else ():
            if cluster.hosts_of(node) == hosts and device.index < cluster.node.count:
                if cluster.node.device.name != kind:
                    other = f"{fleet.name} has {cluster.node.device.name} there"
                    raise OptionError(f"rank {rank} of {name} is on {device}, {kind}; {other}; {cure}")
                return Device(cluster.name, node, device.index)
    raise OptionError(
        f"rank {rank} of {name} is on {device} (host {hosts[0]}), which {fleet.name} does not have; {cure}, and name lost "
        "nodes in require.nodes.exclude"
    )
