"""A link between two clusters of twice the bandwidth. It is taken to cost twice as much: a guess."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.changes import Change, doubled
from sim.hardware.topology import Topology
from sim.units import rate_text


def of(topology: Topology) -> Iterator[Change]:
    """Every link between clusters."""
    for index, trunk in enumerate(topology.fleet.trunks):
        wider = rate_text(2 * trunk.bandwidth)
        ends = " to ".join(trunk.between)
        name = f"{ends}: {trunk.kind} link of {wider}, not {rate_text(trunk.bandwidth)}"
        yield Change(name, ((f"links[{index}].bandwidth", wider), *doubled(f"links[{index}].price", trunk.price)))
