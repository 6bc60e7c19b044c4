"""Change: a cluster has one more node, or one more NVLink domain of nodes."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.changes import Change
from sim.hardware.topology import Topology


def of(topology: Topology) -> Iterator[Change]:
    """One change for each cluster. Host names are deleted, as the new node has none."""
    for cluster in topology.fleet.clusters:
        where = f"clusters.{cluster.name}"
        unnamed: tuple[tuple[str, object], ...] = ((f"{where}.hosts", None),) if cluster.hosts else ()
        more = cluster.num_hosts + cluster.node.hosts
        name = f"{cluster.name}: {more} nodes, not {cluster.num_hosts}"
        yield Change(name, (*unnamed, (f"{where}.nodes", more)))
