"""dt_fm: devices divided into stages by their communication alone; blind to how fast they compute.

DT-FM (Yuan et al., arXiv 2206.01288, section 3) minimises the seconds of the gradient exchange inside groups of devices and of
the messages between them: `planner.placement.communication_groups` has the costs and the division.

The paper is given its degrees; here they are tuned as for megatron: ranked by compute on the slowest device plus the two costs,
the first few then by their closed form, the best of these by simulation. Layers are even, and all devices are used but those
that do not make a whole group (or a stage of one layer). Compression and the scheduling of tasklets are left out."""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Iterator

from planner.costs.context import PlanningContext
from planner.placement.communication_groups import CommunicationModel, Group
from planner.placement.ranks import assemble
from planner.placement.simulation import fastest
from planner.request import Request
from planner.space.shapes import Shape, shapes, slot, slots
from sim.analytic.stage_costs import StageCosts
from sim.errors import Infeasible
from sim.hardware.cluster import Cluster, Device
from sim.kernels import memory
from sim.network.collective_costs import CollectiveCosts
from sim.network.replica_rows import ReplicaRows
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
    deadline = time.monotonic() + request.time_limit
    tuned = sorted(_tuned(request, context), key=lambda item: item[0])
    ranked: list[tuple[Seconds, Shape, tuple[Group, ...]]] = []
    divided: dict[tuple[int, ...], tuple[Seconds, tuple[Group, ...]]] = {}
    for compute, shape, pp in tuned[: max(1, min(DIVIDED, DEVICES // request.topology.fleet.devices))]:
        if ranked and time.monotonic() > deadline:
            break
        key = shape.tp, shape.dp, shape.cp, shape.microbatch_size, pp
        if key not in divided:
            divided[key] = CommunicationModel(request, context.fleets.capacities, shape, pp).division()
        communication, groups = divided[key]
        ranked.append((compute + communication, shape, groups))
    ranked.sort(key=lambda item: item[0])
    built = max(1, min(RANKED, RANKS // request.topology.fleet.devices))
    best = fastest((functools.partial(_build, request, shape, groups) for _, shape, groups in ranked), built, SIMULATED)
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
        pp, m = request.wishes.pp or most, shape.microbatches(request.workload)
        if not 1 <= pp <= most or (shape.vpp > 1 and m % pp):
            continue
        largest, config = math.ceil(layers / pp), shape.config(request.workload, pp)
        kept = m if shape.schedule == "gpipe" else min(m, pp)
        needed = memory.place_bytes(request.workload, config, largest, kept * shape.vpp, True, pp == 1)
        if needed + memory.outside_torch(config) > min(cluster.node.device.memory for cluster in held):
            continue
        key = shape.tp, shape.cp, shape.microbatch_size, shape.recompute
        if key not in slowest:
            slowest[key] = max(_layer_seconds(request, context, shape, cluster) for cluster in held)
        yield (m + (pp - 1) / shape.vpp) * largest * slowest[key], shape, pp


def _layer_seconds(request: Request, context: PlanningContext, shape: Shape, cluster: Cluster) -> Seconds:
    """Seconds of a microbatch on a layer, forward and backward, with its tensor-parallel collectives."""
    config = shape.config(request.workload, 2)
    rows = ReplicaRows.of(request.topology.fleet, (slot(cluster, shape.tp, 0),))
    paces = CollectiveCosts(request.topology.fleet, config, rows, context.fleets.capacities)
    two, one = (StageCosts(request.workload, config, paces).work(layers, False, False) for layers in (2, 1))
    return sum(two) - sum(one)


def _build(request: Request, shape: Shape, groups: tuple[Group, ...]) -> Plan:
    clusters = list(request.clusters())
    devices: list[Device] = []
    for cluster, node, place in itertools.chain.from_iterable(groups):
        per_node = clusters[cluster].node.count // shape.tp
        devices += slot(clusters[cluster], shape.tp, node * per_node + place)
    layers, pp = request.workload.model.layers, len(groups)
    even = tuple(layers * (place + 1) // pp - layers * place // pp for place in range(pp))
    return assemble(request, shape, even, tuple(devices), "dt_fm")
