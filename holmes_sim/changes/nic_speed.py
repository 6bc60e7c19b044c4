"""Change: the NICs of one type in a cluster have a higher bandwidth, at a price that is higher by the same factor (a guess)."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.changes import LARGER, Change, higher_price
from sim.hardware.topology import Topology
from sim.units import rate_text


def of(topology: Topology) -> Iterator[Change]:
    """Several bandwidths for each NIC type of each cluster."""
    for cluster in topology.fleet.clusters:
        for index, nic in enumerate(cluster.node.nics):
            where = f"clusters.{cluster.name}.node.nics[{index}]"
            for factor in LARGER:
                faster = rate_text(factor * nic.bandwidth)
                name = f"{cluster.name}: {nic.kind} NICs of {faster}, not {rate_text(nic.bandwidth)}"
                edits = ((f"{where}.bandwidth", faster), *higher_price(f"{where}.price", nic.price, factor))
                yield Change(name, edits, adds=True, family=f"{where}.bandwidth")
