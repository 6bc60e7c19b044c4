"""Whether ranks sum only their own shards of a tied embedding's gradient (`ParallelConfig.tied_shards`).

This never makes a step longer, so the search does it wherever the gradient is sharded and the target can run it; without a
target, the torch backend can."""

from __future__ import annotations

import functools
from dataclasses import replace

from planner.request import Request
from planner.space.shape import Shape
from planner.target import Target
from sim.plan.parallel_config import ParallelConfig
from sim.workload.workload import Workload

FLAG = "tied_shards"
"""Name of the switch; the reason why a target cannot express it begins with it."""


def with_tied_shards(request: Request, shape: Shape) -> Shape:
    """The shape with the switch on, where it has an effect in a pipeline and can be run."""
    sharded = shape.zero_stage >= 1 and shape.slots > 1 and not shape.all_reduces
    return replace(shape, tied_shards=True) if sharded and is_on(request) else shape


def is_on(request: Request) -> bool:
    """Whether plans for a request may have the switch on."""
    tied, target = request.workload.model.tied_embeddings, request.target
    return tied and (target is None or _expresses(target, request.workload))


@functools.lru_cache(maxsize=1024)
def _expresses(target: Target, workload: Workload) -> bool:
    config = ParallelConfig(pp=2, dp=2, num_microbatches=(2, 2), tied_shards=True)
    return not any(text.startswith(FLAG) for text in target.unsupported_layout(config, workload))
