"""Change: a cluster has more nodes, or more NVLink domains of nodes."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.changes import Change, larger_counts
from sim.hardware.topology import Topology


def of(topology: Topology) -> Iterator[Change]:
    """Several sizes of each cluster. Host names are deleted, as the new nodes have none."""
    for cluster in topology.fleet.clusters:
        where = f"clusters.{cluster.name}"
        unnamed: tuple[tuple[str, object], ...] = ((f"{where}.hosts", None),) if cluster.hosts else ()
        for count in larger_counts(cluster.nodes):
            more = count * cluster.node.hosts
            name = f"{cluster.name}: {more} nodes, not {cluster.num_hosts}"
            yield Change(name, (*unnamed, (f"{where}.nodes", more)), adds=True, family=f"{cluster.name}: nodes")
