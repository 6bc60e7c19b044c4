"""Change: a router that gives all experts equal numbers of tokens, and drops none."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.changes import Change
from sim.hardware.topology import Topology
from sim.workload.routing import BALANCED


def of(topology: Topology) -> Iterator[Change]:
    """Forced balance; nothing without a workload, or where its routing is balanced."""
    if topology.workload is not None and topology.workload.routing != BALANCED:
        yield Change("balanced experts, as a router would give at best", (("workload.routing", "balanced"),))
