"""Drawn requests whose optimizer state or activations are in host memory, with unlike links to the hosts."""

from __future__ import annotations

import random
from dataclasses import replace

from benchmarks.certificates.scarce import tight
from planner.request import Request
from sim.plan.offloading import ACTIVATIONS, CHOICES, OPTIMIZER

RATES = (None, 2e9, 2e10, 5e10)
"""Memory bandwidth of a host for each device in bytes/s; None: the topology gives none."""
LINKS = (1e9, 5e9, 2e10, 4e11)
"""Bandwidth of a device's link to its host in bytes/s: links that hide few copies of activations, many, and all."""


def offloaded(request: Request, seed: int) -> Request:
    """The request with optimizer state on the hosts, whose memory bandwidth is drawn for each cluster."""
    rng = random.Random(f"hosts {seed}")
    clusters = []
    for one in request.topology.fleet.clusters:
        device = replace(one.node.device, host_memory_bandwidth=rng.choice(RATES))
        clusters.append(replace(one, node=replace(one.node, device=device)))
    topology = replace(request.topology, fleet=replace(request.topology.fleet, clusters=tuple(clusters)))
    return replace(request, topology=topology, wishes=replace(request.wishes, offload=OPTIMIZER))


def activations_away(request: Request, seed: int) -> Request:
    """The request with activations on the hosts, and with optimizer state every other time; with links to the hosts that are
    drawn for each cluster, mostly less memory than its plan needs without (`scarce.tight`), and no pinned recomputation."""
    rng = random.Random(f"activations {seed}")
    request = tight(request, seed) if seed % 3 else request
    clusters = []
    for one in request.topology.fleet.clusters:
        device = replace(one.node.device, host_bandwidth=rng.choice(LINKS))
        clusters.append(replace(one, node=replace(one.node, device=device)))
    topology = replace(request.topology, fleet=replace(request.topology.fleet, clusters=tuple(clusters)))
    words = [name for name, kept in CHOICES.items() if ACTIVATIONS in kept]
    return replace(request, topology=topology, wishes=replace(request.wishes, offload=words[seed % len(words)], recompute=None))
