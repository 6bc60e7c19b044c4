"""Drawn requests in which some clusters have devices with less memory, so that their stages may need a larger tp."""

from __future__ import annotations

import random
from dataclasses import replace

from planner.request import Request, Wishes

SHARES = (0.1, 0.2, 0.3, 0.5)
"""Memory of a device that has less, as a share of what it has in the catalogue."""


def scarce(request: Request, seed: int) -> Request:
    """The request without a pinned tp, and with less memory on all clusters but one."""
    rng = random.Random(f"scarce {seed}")
    fleet = request.topology.fleet
    ample = rng.randrange(len(fleet.clusters))
    clusters = []
    for index, one in enumerate(fleet.clusters):
        share = 1.0 if index == ample else rng.choice(SHARES)
        device = replace(one.node.device, memory=one.node.device.memory * share)
        clusters.append(replace(one, node=replace(one.node, device=device)))
    topology = replace(request.topology, fleet=replace(fleet, clusters=tuple(clusters)))
    wishes = replace(request.wishes, tp=None)
    return replace(request, topology=topology, wishes=Wishes() if wishes == request.wishes else wishes)
