"""RDMA NICs that no plan can use, since other NICs are faster or no other node has such NICs.

Ethernet NICs are not examined: launches use them even where a step does not. In a fleet of one node no NIC is needed.
"""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.findings import Finding, Subject
from holmes_sim.network_use import chosen, network_use


def findings(subject: Subject) -> Iterator[Finding]:
    """One finding for each RDMA type of a cluster that no group of a plan uses."""
    fleet = subject.topology.fleet
    if sum(cluster.nodes for cluster in fleet.clusters) == 1:
        return
    used = network_use(fleet).nics
    for cluster in fleet.clusters:
        for index, nic in enumerate(cluster.node.nics):
            if not nic.spec.rdma or (cluster.name, nic.kind) in used:
                continue
            inside = chosen(fleet, (cluster.name,)) if cluster.nodes > 1 else ""
            why = f"nodes of the cluster communicate over {inside}" if inside else "the cluster has one node"
            yield Finding(
                ("clusters", cluster.name, "node", "nics", index),
                f"no plan can use these {nic.kind} NICs: {why}, and no link of type {nic.kind} is used from here",
                "no traffic of a step uses them",
                f"a link of type {nic.kind} to a cluster that has such NICs, or nothing if they are for storage",
            )
