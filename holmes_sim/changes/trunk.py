"""Change: a link between two clusters (a trunk) has a higher bandwidth.

Its price is higher by the same factor (a guess)."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.changes import LARGER, Change, higher_price
from sim.hardware.topology import Topology
from sim.units import rate_text


def of(topology: Topology) -> Iterator[Change]:
    """Several bandwidths for each trunk."""
    for index, trunk in enumerate(topology.fleet.trunks):
        where, ends = f"links[{index}]", " to ".join(trunk.between)
        for factor in LARGER:
            wider = rate_text(factor * trunk.bandwidth)
            name = f"{ends}: {trunk.kind} link of {wider}, not {rate_text(trunk.bandwidth)}"
            edits = ((f"{where}.bandwidth", wider), *higher_price(f"{where}.price", trunk.price, factor))
            yield Change(name, edits, adds=True, family=where)
