"""Clusters that no link of a common NIC type joins to any other cluster."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.findings import Finding, Subject
from sim.hardware.cluster import Cluster, Fleet
from sim.hardware.transport import joint_nics


def findings(subject: Subject) -> Iterator[Finding]:
    """One finding for each cluster that is alone, in fleets of several clusters."""
    fleet = subject.topology.fleet
    for cluster in fleet.clusters:
        others = [other for other in fleet.clusters if other is not cluster]
        if not others or any(joint_nics(fleet, (cluster.name, other.name)) for other in others):
            continue
        yield Finding(
            ("clusters", cluster.name),
            "no link of a common NIC type joins this cluster to any other",
            "a plan uses either this cluster or others, and the rest of the fleet is idle",
            _remedy(fleet, cluster, others),
        )


def _remedy(fleet: Fleet, cluster: Cluster, others: list[Cluster]) -> str:
    """A link that would join the cluster, or the NIC that it lacks."""
    for other in others:
        common = [nic for nic in cluster.node.nics if other.node.nic(nic.kind) is not None]
        one_vendor = other.node.device.vendor == cluster.node.device.vendor or fleet.communicator == "unified"
        usable = [nic.kind for nic in common if one_vendor or not nic.spec.rdma]
        if usable:
            between = f"between: [{cluster.name}, {other.name}], type: {usable[-1]}"
            return f"links: [{{{between}, bandwidth: ..., latency: ...}}]"
    unlike = any(other.node.device.vendor != cluster.node.device.vendor for other in others)
    why = "; RDMA joins no devices of different vendors" if unlike and fleet.communicator != "unified" else ""
    return f"ethernet NICs in the nodes of {cluster.name} and of another cluster, and a link of type ethernet between them{why}"
