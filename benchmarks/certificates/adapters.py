"""Drawn requests that train adapters in place of the weights (`sim.workload.adapter`)."""

from __future__ import annotations

import random
from dataclasses import replace

from planner.request import Request
from sim.workload.adapter import PRODUCTS, Adapter
from sim.workload.model import NARROW

RANKS = (4, 16, 64, 256)
MODULES = (tuple(PRODUCTS), ("q_proj", "v_proj"), ("o_proj", "down_proj"))
BASES = ("", "nf4")


def adapted(request: Request, seed: int) -> Request:
    """The request with adapters, its base weights as wide as before or in 4 bits; a narrow precision becomes bf16."""
    rng = random.Random(f"adapted {seed}")
    adapter = Adapter(rng.choice(RANKS), rng.choice(MODULES), rng.choice(BASES))
    own = request.workload
    workload = replace(own, adapter=adapter, precision="bf16" if own.precision in NARROW else own.precision)
    return replace(request, workload=workload, topology=replace(request.topology, workload=workload))
