"""Requests on small unlike fleets."""

from __future__ import annotations

from dataclasses import replace

from planner.request import Request
from sim.hardware.cluster import Trunk
from sim.workload.adapter import Adapter
from tests import builders as make
from tests.planner.builders import request


def two_kinds(
    nodes: tuple[int, int] = (2, 1),
    devices: tuple[int, int] = (1, 2),
    rate: float = 1e9,
    batch: int = 8,
    memory: float = 8e10,
    adapter: Adapter | None = None,
    experts: int = 0,
) -> Request:
    """Clusters `a`, whose devices are twice as fast, and `b`; a model of three layers. rate: bytes a second of a NIC; memory:
    bytes of a device; adapter: what is trained in place of all weights; experts: of each layer, of which a
    token chooses two."""
    facts = zip("ab", nodes, devices, (2e12, 1e12), strict=True)
    clusters = [
        make.cluster(name, number, many, (make.nic(bandwidth=rate),), make.device(f"chip-{name}", speed, 1e12, memory=memory))
        for name, number, many, speed in facts
    ]
    machines = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "infiniband", rate, 0.0),))
    shape = {"experts": experts, "experts_per_token": 2} if experts else {}
    return adapted(request(machines, make.model(3, **shape), batch, seq_len=256), adapter)


def adapted(asked: Request, adapter: Adapter | None) -> Request:
    """The request with adapters in place of all weights."""
    workload = replace(asked.workload, adapter=adapter)
    return replace(asked, workload=workload, topology=replace(asked.topology, workload=workload))
