"""Change: a link between two clusters (a trunk) has twice the bandwidth, at twice the price (a guess)."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.changes import Change, doubled_price
from sim.hardware.topology import Topology
from sim.units import rate_text


def of(topology: Topology) -> Iterator[Change]:
    """One change for each trunk."""
    for index, trunk in enumerate(topology.fleet.trunks):
        wider = rate_text(2 * trunk.bandwidth)
        ends = " to ".join(trunk.between)
        name = f"{ends}: {trunk.kind} link of {wider}, not {rate_text(trunk.bandwidth)}"
        yield Change(name, ((f"links[{index}].bandwidth", wider), *doubled_price(f"links[{index}].price", trunk.price)))
