"""Lengths of pipelines (pp), and pipelines, that the pins and limits of a request allow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from planner.request import Request
from planner.space.runnable import recomputes_blocks, runs
from planner.space.shape import Shape
from sim.plan.parallel_config import BLOCK


def longest(request: Request, shape: Shape) -> int | None:
    """The largest pp of a shape; None where only layers and devices limit it."""
    if shape.recompute == BLOCK and not recomputes_blocks(request)[1]:
        return 1
    limited = request.limits.most_stages(shape)
    return limited if request.wishes.pp is None else min(request.wishes.pp, limited or request.wishes.pp)


def shortest(request: Request) -> int:
    """The least pp of any shape."""
    return max(request.wishes.pp or 1, request.limits.least_stages)


def exist(request: Request) -> bool:
    """Whether some number of stages is allowed, whatever the shape: kept stages may exclude one another."""
    model = request.workload.model
    numbers = range(1, model.layers + model.mtp_layers + 1)
    return any(request.wishes.pp in (None, pp) and request.limits.allows_number(pp) for pp in numbers)


def allows(request: Request, shape: Shape, pp: int) -> bool:
    """Whether pipelines of a shape may have pp stages. Virtual stages need two or more: on one rank they run in the order of a
    single stage, and no framework has them there."""
    return request.wishes.pp in (None, pp) and (pp > 1 or shape.vpp == 1) and request.limits.allows_length(shape, pp)


def allows_ends(request: Request, shape: Shape, first: str, last: str) -> bool:
    """Whether a pipeline of a shape may begin and end on these clusters. A tied embedding whose gradient is sharded needs end
    stages of one tp, whose shards are equal."""
    sharded = request.workload.model.tied_embeddings and shape.zero_stage >= 1 and shape.slots > 1
    return request.limits.allows_ends(first, last) and (not sharded or shape.tp_on(first) == shape.tp_on(last))


def allows_order(request: Request, shape: Shape, clusters: Sequence[str]) -> bool:
    """Whether a pipeline of a shape may have its stages on these clusters, in this order."""
    return allows_ends(request, shape, clusters[0], clusters[-1]) and request.limits.uses_enough(clusters)


def allows_stages(request: Request, shape: Shape, clusters: Sequence[str]) -> bool:
    """Whether the schedule is defined for a pipeline with a stage on each of these clusters, and pins, limits and the target of
    the request allow it."""
    pp, workload, limits = len(clusters), request.workload, request.limits
    return (
        pp * shape.vpp <= workload.model.layers
        and shape.is_defined(shape.microbatches(workload), pp)
        and allows(request, shape, pp)
        and runs(request, shape, pp)
        and allows_ends(request, shape, clusters[0], clusters[-1])
        and limits.allows_stages(clusters)
        and limits.allows_nodes(request.topology.fleet, shape, Counter(clusters))
    )
