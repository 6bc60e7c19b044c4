"""Change: a cluster is removed, together with the trunks that end in it."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.changes import Change
from sim.hardware.topology import Topology


def of(topology: Topology) -> Iterator[Change]:
    """One change for each cluster, if there are several."""
    if len(topology.fleet.clusters) == 1:
        return
    links = topology.facts().get("links", [])
    for cluster in topology.fleet.clusters:
        others = [link for link in links if cluster.name not in link["between"]]
        edits: list[tuple[str, object]] = [("links", others)] if links else []
        yield Change(f"{cluster.name}: left out", (*edits, (f"clusters.{cluster.name}", None)))
