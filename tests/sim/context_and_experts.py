"""Plans with context and expert parallelism, and a published model with experts."""

from __future__ import annotations

import json
from dataclasses import replace

from sim.formats import catalog
from sim.plan.plan import Plan
from tests import builders
from tests.builders import cluster, fleet, nic, wire

EXPERTS = {"experts": 12, "experts_per_token": 2}

MIXTRAL = catalog.model("mixtral-8x7b")


def described(plan: Plan) -> Plan:
    """The plan with a topology document, which a plan file holds."""
    topology = {
        "format": "holmes-sim/topology/1", "name": "tiny", "links": [],
        "clusters": {"c": {"nodes": 4, "node": {
            "devices": {"type": "a100-sxm4-80gb", "count": 4}, "intra_node": "nvlink3",
            "nics": [{"type": "infiniband", "bandwidth": "200 Gbit/s"}],
        }}},
    }  # fmt: skip
    return replace(plan, topology=replace(plan.topology, document=json.dumps(topology)))


def nodes(bandwidth: float = 1e9, latency: float = 1e-6, count: int = 4, **facts: object) -> Plan:
    """A plan on nodes of four ideal devices; `facts` are arguments of tests.builders.plan."""
    delays = {"latency": latency, "overhead": latency}
    node = {"nics": (nic(bandwidth=bandwidth, **delays),), "intra_node": wire(bandwidth=4 * bandwidth, **delays)}
    return builders.plan(fleet(cluster(nodes=count, devices=4, **node)), **facts)
