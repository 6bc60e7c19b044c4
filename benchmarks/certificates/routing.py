"""Drawn requests whose models have experts, among which routers divide tokens unevenly (`sim.workload.routing`)."""

from __future__ import annotations

import random
from dataclasses import replace

from planner.request import Request
from sim.workload.routing import Routing


def routed(request: Request, seed: int) -> Request:
    """The request with experts in every layer of its model, uneven by an imbalance or by counted tokens, with or without a
    capacity."""
    own, rng = request.workload.model, random.Random(f"routed {seed}")
    number, chosen = rng.choice((2, 4)), rng.choice((1, 2))
    model = replace(own, experts=number, experts_per_token=chosen)
    tokens = tuple(rng.randint(1, 9) for _ in range(number)) if rng.random() < 0.5 else ()
    capacity = rng.choice((None, None, min(number / chosen, 1.25), 0.75))
    padded = capacity is not None and rng.random() < 0.5
    routing = Routing(1.0 if tokens else rng.choice((1.1, 1.5, 3.0)), tokens, capacity, padded)
    workload = replace(request.workload, model=model, routing=routing)
    return replace(request, workload=workload, topology=replace(request.topology, workload=workload))
