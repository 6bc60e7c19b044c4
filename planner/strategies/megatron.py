"""megatron: ranks in the default order tp-cp-ep-dp-pp over the nodes as listed, even layers; ignores NICs and device types.

Megatron-LM (Narayanan et al., arXiv 2104.04473; megatron/core/parallel_state.py) numbers ranks over the hosts in the launcher's
order and gives every stage the same number of layers. All devices are used. Degrees, microbatch size and recomputation are the
best ones that fit, as a careful user would tune them: shapes are ranked by a closed form in which all devices are as fast as
the slowest, the first ones by their full closed form, and the best of these by simulation."""

from __future__ import annotations

import functools
from contextlib import suppress

from planner.costs.context import PlanningContext
from planner.costs.mixed_stages import MixedStageCosts, mixed_costs
from planner.costs.node_classes import NodeClass
from planner.placement.ranks import assemble
from planner.placement.simulation import fastest
from planner.request import Request
from planner.space import lengths
from planner.space.device_slots import cut
from planner.space.shape import Shape
from planner.space.shapes import searched, slot, slots
from planner.time_limit import TimeLimit
from sim.errors import Infeasible, NotDefined
from sim.hardware.cluster import Device
from sim.plan.plan import Plan

RANKED = 8
SIMULATED = 2
"""Maximum numbers of plans that are built and ranked, and of those that are simulated (guesses)."""


def plan(request: Request, context: PlanningContext) -> Plan:
    """The fastest even layout of this rank order. Raises Infeasible where none fits."""
    limit, costs = context.quick_limit(), mixed_costs(context)
    ranked = sorted(_ranked(request, context, costs, limit), key=lambda item: item[0])
    builders = (functools.partial(_build, request, shape, pp) for _, shape, pp in ranked)
    best = fastest(builders, RANKED, SIMULATED, limit)
    if best is None:
        raise Infeasible(
            "megatron: no layout with equal stages over all devices divides the layers and the batch and fits the memory"
        )
    return best


def _ranked(
    request: Request, context: PlanningContext, costs: MixedStageCosts, limit: TimeLimit
) -> list[tuple[float, Shape, int]]:
    """(seconds, shape, pp) of every even layout over all devices that fits, as if all devices were as fast as the slowest; of
    one at least, if the time limit ends this."""
    layers, found = request.workload.model.layers, list[tuple[float, Shape, int]]()
    clusters = list(request.clusters())
    for shape in searched(request, across=True, every_size=False, unequal=False):
        if found and limit.is_up():
            break
        if any(cluster.node.count % shape.tp for cluster in clusters):
            continue
        pp, rest = divmod(sum(slots(cluster, shape.tp) for cluster in clusters), shape.slots)
        if rest or pp < 1 or layers % pp or not lengths.allows(request, shape, pp) or layers // pp < shape.vpp:
            continue
        m = shape.microbatches(request.workload)
        if not shape.is_defined(m, pp) or not _fits(request, costs, shape, pp):
            continue
        classes = [NodeClass(context, cluster, shape, []) for cluster in clusters]
        slowest = max(option.layer_seconds for option in classes) * layers / pp
        found.append(((m + (pp - 1) / shape.vpp) * slowest, shape, pp))
    return found


def _fits(request: Request, costs: MixedStageCosts, shape: Shape, pp: int) -> bool:
    """Whether all stages of a layout have the memory that they need, which is known sooner than its seconds."""
    m, layers = shape.microbatches(request.workload), request.workload.model.layers // pp
    with suppress(NotDefined):
        for pp_rank, stage in enumerate(cut(request.clusters(), shape.tp, shape.slots)):
            needed, there = costs.bytes_at(shape, stage, layers, pp_rank, pp, m)
            if needed > there:
                return False
        return True
    return False


def _build(request: Request, shape: Shape, pp: int) -> Plan:
    """The plan of a layout. Raises NoRoute or NotDefined (`assemble`)."""
    devices: list[Device] = []
    for cluster in request.clusters():
        for index in range(slots(cluster, shape.tp)):
            devices += slot(cluster, shape.tp, index)
    layers = (request.workload.model.layers // pp,) * pp
    return assemble(request, shape, layers, tuple(devices), "megatron")
