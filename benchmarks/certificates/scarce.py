"""Drawn requests with less memory: on some clusters, whose stages may need a larger tp, or on all, where stages recompute;
or with less of the links between clusters for each rank."""

from __future__ import annotations

import random
from dataclasses import replace

from planner.costs.context import PlanningContext
from planner.request import Request, Wishes
from planner.search.budgets import Budgets
from planner.strategies import certified
from sim.errors import Infeasible
from sim.kernels import communicators, memory
from sim.plan.plan import Plan

SHARES = (0.1, 0.2, 0.3, 0.5)
"""Memory of a device that has less, as a share of what it has in the catalogue."""

RATES = (0.02, 0.1, 0.5)
"""Shares of a link's rate that one rank's TCP connections carry."""
TIGHT = (0.05, 0.2, 0.4, 0.6, 0.8, 0.95)
"""Memory of all devices, between what the plan without this limit needs with and without full recomputation."""


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


def tight(request: Request, seed: int) -> Request:
    """The request with less memory on all devices than its plan needs, so that stages may recompute some layers."""
    rng = random.Random(f"tight {seed}")
    wishes = replace(request.wishes, recompute=None)
    request = replace(request, wishes=Wishes() if wishes == request.wishes else wishes)
    try:
        plan = certified.plan(request, PlanningContext(request), replace(Budgets(), unlike_layouts=0, short_shapes=0))
    except Infeasible:
        return request
    return squeezed(request, plan, rng.choice(TIGHT))


def squeezed(request: Request, plan: Plan, share: float) -> Request:
    """The request with devices that have for torch, at most, what a plan needs that recomputes all layers, and a share of what
    it needs more without recomputation."""
    every = (replace(plan, config=plan.config.recomputing(recompute)) for recompute in ("full", "none"))
    full, none = (max(memory.torch_bytes(one)) for one in every)
    most = communicators.outside_torch(plan.config) + full + share * (none - full)
    clusters = []
    for one in request.topology.fleet.clusters:
        device = replace(one.node.device, memory=min(one.node.device.memory, most))
        clusters.append(replace(one, node=replace(one.node, device=device)))
    fleet = replace(request.topology.fleet, clusters=tuple(clusters))
    return replace(request, topology=replace(request.topology, fleet=fleet))


def windowed(request: Request, seed: int) -> Request:
    """The request with TCP windows on all Ethernet links between clusters, so that each rank sends at a share of the
    link's rate (`RATES`)."""
    rng = random.Random(f"windowed {seed}")
    trunks = tuple(
        replace(trunk, window=2 * trunk.latency * trunk.bandwidth * rng.choice(RATES)) if trunk.kind == "ethernet" else trunk
        for trunk in request.topology.fleet.trunks
    )
    return replace(request, topology=replace(request.topology, fleet=replace(request.topology.fleet, trunks=trunks)))
