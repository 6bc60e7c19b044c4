"""Change: every node of a cluster has more NICs of one type."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.changes import Change, larger_counts
from sim.hardware.topology import Topology


def of(topology: Topology) -> Iterator[Change]:
    """Several counts for each NIC type of each cluster: twice as many, and others where the devices of a node have equal shares
    of the NICs, as in nodes that are sold."""
    for cluster in topology.fleet.clusters:
        devices = cluster.node.host.count
        for index, nic in enumerate(cluster.node.host.nics):
            where = f"clusters.{cluster.name}.node.nics[{index}]"
            unnamed: tuple[tuple[str, object], ...] = ((f"{where}.names", None),) if nic.names else ()
            for count in larger_counts(nic.count):
                if count == 2 * nic.count or devices % count == 0 or count % devices == 0:
                    name = f"{cluster.name}: {count} {nic.kind} NICs a node, not {nic.count}"
                    yield Change(name, (*unnamed, (f"{where}.count", count)), adds=True, family=f"{where}.count")
