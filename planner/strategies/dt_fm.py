"""dt_fm: devices divided into stages by their communication alone; ignores how fast they compute.

DT-FM (Yuan et al., arXiv 2206.01288, section 3) minimises the seconds of the gradient exchange inside groups of devices and of
the messages between them: `planner.placement.communication_groups` has the costs and the division.

The paper takes the degrees as given. Here they are chosen as for megatron: shapes are ranked by compute on the slowest device
plus the two costs, the first ones by their closed form, and the best of these by simulation. Layers are even. All devices are
used, except those that do not fill a group, or whose stage would have no layer. Compression and the scheduling of tasklets are
left out."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator

from planner.costs.context import PlanningContext
from planner.placement.communication_groups import CommunicationModel, Group
from planner.placement.ranks import assemble
from planner.placement.simulation import fastest
from planner.request import Request
from planner.space import lengths
from planner.space.shape import Shape
from planner.space.shapes import shapes, slot, slots
from sim.analytic.stage_costs import StageCosts
from sim.errors import Infeasible
from sim.hardware.cluster import Cluster, Device
from sim.kernels import communicators, memory
from sim.network.collective_costs import CollectiveCosts
from sim.network.replica_rows import ReplicaRows
from sim.plan import schedules
from sim.plan.plan import Plan
from sim.units import Seconds

DIVIDED = 48
DEVICES = 400_000
"""Maximum number of shapes that are divided into groups, and of their devices in all; at least one shape (guesses)."""
RANKED = 12
RANKS = 12_000
"""Maximum number of plans that are built, and of their ranks in all; at least one plan (guesses)."""
SIMULATED = 3
"""Maximum number of plans that are simulated (a guess)."""


def plan(request: Request, context: PlanningContext) -> Plan:
    """The fastest of the plans that compute and communication rank first. Raises Infeasible where none fits."""
    limit = context.limit
    tuned = sorted(_tuned(request, context), key=lambda item: item[0])
    ranked: list[tuple[Seconds, Shape, tuple[Group, ...]]] = []
    divided: dict[tuple[int, ...], tuple[Seconds, tuple[Group, ...]]] = {}
    for compute, shape, pp in tuned[: max(1, min(DIVIDED, DEVICES // request.topology.fleet.devices))]:
        if ranked and limit.is_up():
            break
        key = shape.tp, shape.dp, shape.cp, shape.microbatch_size, pp
        if key not in divided:
            divided[key] = CommunicationModel(request, context.fleets.capacities, shape, pp).division()
        communication, groups = divided[key]
        ranked.append((compute + communication, shape, groups))
    ranked.sort(key=lambda item: item[0])
    built = max(1, min(RANKED, RANKS // request.topology.fleet.devices))
    builders = (functools.partial(_build, request, shape, groups) for _, shape, groups in ranked)
    best = fastest(builders, built, SIMULATED, limit)
    if best is None:
        raise Infeasible("dt_fm: no layout of even layers over balanced groups of devices fits the memory and the batch")
    return best


def _tuned(request: Request, context: PlanningContext) -> Iterator[tuple[Seconds, Shape, int]]:
    """(seconds of compute as if all devices were the slowest, shape, pp) of every even layout over all devices that fits."""
    clusters, layers = list(request.clusters()), request.workload.model.layers
    slowest: dict[tuple[int | str, ...], Seconds] = {}
    for shape in shapes(request, across=True):
        held = [cluster for cluster in clusters if cluster.node.count >= shape.tp]
        most = min(sum(slots(cluster, shape.tp) for cluster in held) // shape.slots, layers // shape.vpp)
        pp = request.wishes.pp or min(most, lengths.longest(request, shape) or most)
        m = shape.microbatches(request.workload)
        if not 1 <= pp <= most or not shape.is_defined(m, pp):
            continue
        largest, config = math.ceil(layers / pp), shape.config(request.workload, pp)
        kept = m if schedules.forwards_first(shape.schedule) else min(m, pp)
        needed = memory.rank_bytes(request.workload, config, largest, kept * shape.vpp, True, pp == 1)
        if needed + communicators.outside_torch(config) > min(request.topology.room(cluster.node.device) for cluster in held):
            continue
        key = shape.tp, shape.cp, shape.microbatch_size, shape.recompute
        if key not in slowest:
            slowest[key] = max(_layer_seconds(request, context, shape, cluster) for cluster in held)
        yield (m + (pp - 1) / shape.vpp) * largest * slowest[key], shape, pp


def _layer_seconds(request: Request, context: PlanningContext, shape: Shape, cluster: Cluster) -> Seconds:
    """Seconds of a microbatch on a layer, forward and backward, with its tensor-parallel collectives."""
    config = shape.config(request.workload, 2)
    rows = ReplicaRows.of(request.topology.fleet, (slot(cluster, shape.tp, 0),))
    collectives = CollectiveCosts(request.topology.fleet, config, rows, context.fleets.capacities)
    two, one = (StageCosts(request.workload, config, collectives).work(layers, False, False) for layers in (2, 1))
    return sum(two) - sum(one)


def _build(request: Request, shape: Shape, groups: tuple[Group, ...]) -> Plan:
    clusters = list(request.clusters())
    devices: list[Device] = []
    for cluster, node, index in itertools.chain.from_iterable(groups):
        per_node = clusters[cluster].node.count // shape.tp
        devices += slot(clusters[cluster], shape.tp, node * per_node + index)
    layers, pp = request.workload.model.layers, len(groups)
    even = tuple(layers * (stage + 1) // pp - layers * stage // pp for stage in range(pp))
    return assemble(request, shape, even, tuple(devices), "dt_fm")
