"""Change: every node of a cluster has twice as many NICs of one type."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.changes import Change
from sim.hardware.topology import Topology


def of(topology: Topology) -> Iterator[Change]:
    """One change for each NIC type of each cluster."""
    for cluster in topology.fleet.clusters:
        for index, nic in enumerate(cluster.node.host.nics):
            where = f"clusters.{cluster.name}.node.nics[{index}]"
            unnamed: tuple[tuple[str, object], ...] = ((f"{where}.names", None),) if nic.names else ()
            name = f"{cluster.name}: {2 * nic.count} {nic.kind} NICs a node, not {nic.count}"
            yield Change(name, (*unnamed, (f"{where}.count", 2 * nic.count)))
