"""Idle devices of a plan: how many there are, and why clusters are idle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from holmes_sim import targets
from holmes_sim.describing.defaults import STATE_BYTES
from planner.target import ANY
from sim.hardware.cluster import Cluster, Trunk
from sim.hardware.transport import joint_nics
from sim.plan.parallel_config import GRADIENT_BYTES
from sim.plan.plan import Plan
from sim.units import BytesPerSecond, rate_text, time_text

THIN = 0.1
"""Share of a step from which on the seconds of all gradients on a link make it thin. A guess: exact plans hide a part of them
beside the backward."""

OLDER = "fp16"
"""The number format of 16 bits that devices without bf16 have."""


def idle_devices(plan: Plan) -> str:
    """How many devices are idle, as a sentence; empty where none is."""
    idle = plan.fleet.devices - plan.config.world_size
    return f"{idle:,} of {plan.fleet.devices:,} devices {'is' if idle == 1 else 'are'} idle." if idle else ""


def idle_label(number: int) -> str:
    """The label of a mark for so many idle devices."""
    return f"idle: {number:,} device{'s' * (number > 1)}"


def idle_clusters(plan: Plan) -> Iterator[str]:
    """Which clusters are idle and why, a sentence for each reason: the precision, the network, the vendor, or a slower step."""
    used = tuple(dict.fromkeys(device.cluster for device in plan.placement))
    others = [cluster for cluster in plan.fleet.clusters if cluster.name not in used]
    reasons = {cluster.name: _reason(plan, cluster, used) for cluster in others}
    for reason in dict.fromkeys(reasons.values()):
        names = [name for name, why in reasons.items() if why == reason]
        one = len(names) == 1
        yield f"{', '.join(names)} {'is' if one else 'are'} idle: {reason.format('it' if one else 'any of them')}."


def _reason(plan: Plan, cluster: Cluster, used: tuple[str, ...]) -> str:
    """Why no rank is on a cluster, as text with a place for "it"."""
    device, precision = cluster.node.device, plan.workload.precision
    if not device.runs(precision):
        runs_older = all(plan.fleet.cluster(one).node.device.runs(OLDER) != "" for one in (*used, cluster.name))
        return f"{device.name} has no {precision}" + (
            f"; with --set workload.precision={OLDER} plans may use {{}}" * runs_older
        )
    if not any(joint_nics(plan.fleet, (one, cluster.name)) for one in used):
        unified = replace(plan.fleet, communicator="unified")
        if any(joint_nics(unified, (one, cluster.name)) for one in used):
            return (
                f"RDMA joins no devices of different vendors ({device.vendor} here): it needs Ethernet NICs and a link of type "
                "ethernet, or a library that joins them (`communicator: unified` of the topology)"
            )
        return f"no link of a common NIC type leads to {', '.join(used)} (`links` of the topology)"
    target = plan.certificate.target if plan.certificate is not None else ""
    if target and not targets.named(target).joins(plan.fleet, (*used, cluster.name)):
        others = " and ".join(sorted({plan.fleet.cluster(one).node.device.vendor for one in used}))
        return (
            f"{targets.named(target).can_not} run one plan on devices of {device.vendor} and {others}, unless one library "
            f"joins them (`communicator: unified` of the topology){_islands(plan, cluster, used)}"
        )
    able = f" and that {'some framework' if target == ANY else target} can run" if target else ""
    return f"no plan that uses {{}}{able} was found to be faster{_islands(plan, cluster, used)}"


def _islands(plan: Plan, cluster: Cluster, used: tuple[str, ...]) -> str:
    """That islands exchange less, where a thin link leads to a cluster that can hold the model alone; else empty."""
    links = [trunk for trunk in plan.fleet.trunks if cluster.name in trunk.between and set(trunk.between) & set(used)]
    memory = cluster.nodes * cluster.node.count * cluster.node.device.memory
    held = STATE_BYTES if plan.workload.adapter is None else plan.workload.bytes_per_value
    if not links or plan.workload.model.parameters * held > memory:
        return ""
    rates = [min(trunk.bandwidth, _nics(plan, trunk)) for trunk in links]
    widest = max(range(len(links)), key=rates.__getitem__)
    narrow = rates[widest] < links[widest].bandwidth
    over = f"the {links[widest].kind} NICs at its link" if narrow else "its link"
    reason = _thin(plan, over, rates[widest])
    return f"; {reason}" if reason else ""


def _nics(plan: Plan, trunk: Trunk) -> BytesPerSecond:
    """Rate of the NICs of a link's type that the nodes of one of its clusters have together, of the one that has less."""
    ends = map(plan.fleet.cluster, trunk.between)
    found = ((cluster.nodes, cluster.node.nic(trunk.kind)) for cluster in ends)
    return min(0.0 if nic is None else nodes * nic.count * nic.bandwidth for nodes, nic in found)


def idle_nodes(plan: Plan) -> Iterator[str]:
    """That islands exchange less, a sentence for each cluster whose nodes are partly idle where its network is thin."""
    for cluster in plan.fleet.clusters:
        used = {device.node for device in plan.placement if device.cluster == cluster.name}
        if not used or len(used) == cluster.nodes or not cluster.node.nics:
            continue
        reason = _thin(plan, "the NICs of a node", max(nic.bandwidth * nic.count for nic in cluster.node.nics))
        if reason:
            yield f"{cluster.nodes - len(used)} of {cluster.nodes} nodes of {cluster.name} are idle: {reason}."


def _thin(plan: Plan, over: str, rate: BytesPerSecond) -> str:
    """That the gradients of a step travel for long at a rate, and that islands exchange less; empty where they do not, or where
    requirements may be what keeps devices idle."""
    proof = plan.certificate
    required = proof is not None and any(axis.name == "required" for axis in proof.space)
    if plan.prediction is None or required:
        return ""
    seconds = plan.workload.trained_parameters * GRADIENT_BYTES[plan.config.gradient_precision] / rate
    if seconds < THIN * plan.prediction.step_s:
        return ""
    return (
        f"to send the gradients of a step over {over} of {rate_text(rate)} takes {time_text(seconds)}: "
        "`plan --sync any` finds islands that exchange less (docs/thin-links.md)"
    )
