"""Drawn requests whose optimizer state is in host memory, of hosts with unlike memory bandwidth."""

from __future__ import annotations

import random
from dataclasses import replace

from planner.request import Request
from sim.plan.offloading import OPTIMIZER

RATES = (None, 2e9, 2e10, 5e10)
"""Memory bandwidth of a host for each device in bytes/s; None: the topology gives none."""


def offloaded(request: Request, seed: int) -> Request:
    """The request with optimizer state on the hosts, whose memory bandwidth is drawn for each cluster."""
    rng = random.Random(f"hosts {seed}")
    clusters = []
    for one in request.topology.fleet.clusters:
        device = replace(one.node.device, host_memory_bandwidth=rng.choice(RATES))
        clusters.append(replace(one, node=replace(one.node, device=device)))
    topology = replace(request.topology, fleet=replace(request.topology.fleet, clusters=tuple(clusters)))
    return replace(request, topology=topology, wishes=replace(request.wishes, offload=OPTIMIZER))
