"""Where plans that recompute modules of layers are tried beside the proof, without a pin."""

from __future__ import annotations

import functools

from planner.request import Request
from planner.target import Target
from sim.plan.offloading import ACTIVATIONS
from sim.plan.parallel_config import ParallelConfig
from sim.workload.workload import Workload

CHOICES = ("layernorm", "moe_act", "layernorm+moe_act", "moe", "layernorm+moe")
"""Modules of a layer with experts that are recomputed together (`sim.plan.recomputation`), as `stage_recompute` has them. Dense
layers have none: on eight fleets of unlike memory, no choice for them saved more than 0.2 % of a step."""


def may_recompute_modules(request: Request) -> bool:
    """Whether such plans are tried: for models with experts whose layers are equal, where nothing is pinned or required of
    recomputation, neither adapters nor activations on hosts change what a layer keeps, and the target can launch stages that
    recompute in unlike ways, or there is none."""
    free = request.wishes.recompute is None and request.limits.allows("recompute", "selective")
    if not free or ACTIVATIONS in request.wishes.offloaded or request.workload.adapter is not None:
        return False
    if not request.workload.model.experts or not request.workload.model.is_uniform:
        return False
    return request.target is None or _takes(request.target, request.workload)


@functools.lru_cache(maxsize=1024)
def _takes(target: Target, workload: Workload) -> bool:
    config = ParallelConfig(
        pp=2, num_microbatches=(2,), schedule="1f1b", recompute="selective", stage_recompute=("none", "layernorm")
    )
    return not any(text.startswith("stage_recompute") for text in target.unsupported_layout(config, workload))
