"""Change: the NICs of one type in a cluster have twice the bandwidth, at twice the price (a guess)."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.changes import Change, doubled_price
from sim.hardware.topology import Topology
from sim.units import rate_text


def of(topology: Topology) -> Iterator[Change]:
    """One change for each NIC type of each cluster."""
    for cluster in topology.fleet.clusters:
        for index, nic in enumerate(cluster.node.nics):
            faster = rate_text(2 * nic.bandwidth)
            where = f"clusters.{cluster.name}.node.nics[{index}]"
            name = f"{cluster.name}: {nic.kind} NICs of {faster}, not {rate_text(nic.bandwidth)}"
            yield Change(name, ((f"{where}.bandwidth", faster), *doubled_price(f"{where}.price", nic.price)))
