"""Plans with context and expert parallelism, and a published model with experts."""

from __future__ import annotations

from sim.formats import catalog
from sim.plan.plan import Plan
from tests import builders
from tests.builders import cluster, fleet, nic, wire

EXPERTS = {"experts": 12, "experts_per_token": 2}

MIXTRAL = catalog.model("mixtral-8x7b")


def nodes(bandwidth: float = 1e9, latency: float = 1e-6, count: int = 4, **facts: object) -> Plan:
    """A plan on nodes of four ideal devices; `facts` are arguments of tests.builders.plan."""
    delays = {"latency": latency, "overhead": latency}
    node = {"nics": (nic(bandwidth=bandwidth, **delays),), "intra_node": wire(bandwidth=4 * bandwidth, **delays)}
    return builders.plan(fleet(cluster(nodes=count, devices=4, **node)), **facts)
