"""random: the best of 200 randomly drawn plans, the baseline that every other strategy must beat.

Random search shows how easy a search space is (Bergstra and Bengio, JMLR 13, 2012, section 2). Each draw takes a shape (all
degrees but pp), a number of stages, an order of the clusters, an even division of the layers with some layers moved to another
stage, and whether the replicas of a stage or the stages of a replica are on consecutive slots. The first 200 plans that fit the
memory are ranked by their closed form, the engine simulates the best, and the fastest is returned. Microbatches are even, and
tensor-parallel groups are inside nodes. The seed is fixed. The ranks of all plans are limited: 200 plans on fleets of up to
about 50 devices, about eight on 1,000, and one on 100,000."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain

from planner.costs.context import PlanningContext
from planner.placement.ranks import assemble
from planner.placement.simulation import fastest
from planner.request import Request
from planner.space import lengths
from planner.space.shape import Shape
from planner.space.shapes import shapes, slot, slots
from planner.time_limit import TimeLimit
from sim.errors import Infeasible
from sim.hardware.cluster import Cluster, Device
from sim.kernels import communicators, memory
from sim.plan import schedules
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan

SEED = 0
DRAWN = 200
"""Maximum number of plans that fit and are ranked."""
SIMULATED = 3
"""Maximum number of plans that are simulated (a guess)."""
DRAWS = 4_000
RANKS = 6_000
"""Maximum number of draws, and of ranks of all plans built: after these, fewer than `DRAWN` plans are enough (guesses)."""


def plan(request: Request, context: PlanningContext) -> Plan:
    """The fastest of the drawn plans. Raises Infeasible where none of them fits."""
    best = fastest(_drawn(request, context.limit), DRAWN, SIMULATED, context.limit)
    if best is None:
        raise Infeasible(f"random: none of the plans drawn fits the memory and the batch of {request.topology.name}")
    return best


def _drawn(request: Request, limit: TimeLimit) -> Iterator[Callable[[], Plan]]:
    """Plans that fit the memory, in the order in which they are drawn."""
    draw, ranks = random.Random(SEED), 0
    known, clusters = list(shapes(request, across=True)), list(request.clusters())
    for _ in range(DRAWS):
        if ranks > RANKS or (ranks and limit.is_up()):
            return
        shape = draw.choice(known)
        pp = _stages(request, shape, clusters, draw)
        if pp is None:
            continue
        layers = uneven(request.workload.model.layers, pp, shape.vpp, draw)
        order = draw.sample(clusters, len(clusters))
        rows = _rows(order, shape, pp, pipelines=draw.random() < 0.5)
        if _fits(request, shape.config(request.workload, pp), layers, rows):
            devices = tuple(chain.from_iterable(chain.from_iterable(rows)))
            ranks += len(devices)
            yield partial(assemble, request, shape, layers, devices, "random")


def _stages(request: Request, shape: Shape, clusters: list[Cluster], draw: random.Random) -> int | None:
    """A random number of stages that devices, layers, schedule and pins allow; None where there is none."""
    room = sum(slots(cluster, shape.tp) for cluster in clusters) // shape.slots
    most = min(room, request.workload.model.layers // shape.vpp)
    microbatches = shape.microbatches(request.workload)
    able = (pp for pp in range(1, most + 1) if lengths.allows(request, shape, pp))
    fitting = [pp for pp in able if shape.is_defined(microbatches, pp)]
    return draw.choice(fitting) if fitting else None


def uneven(layers: int, pp: int, least: int, draw: random.Random) -> tuple[int, ...]:
    """Layers of every stage: even, then up to pp times one layer moved to another stage; every stage keeps `least`."""
    found = [layers * (stage + 1) // pp - layers * stage // pp for stage in range(pp)]
    for _ in range(draw.randint(0, pp)):
        source, target = draw.randrange(pp), draw.randrange(pp)
        if found[source] > least:
            found[source] -= 1
            found[target] += 1
    return tuple(found)


def _rows(order: list[Cluster], shape: Shape, pp: int, pipelines: bool) -> list[list[tuple[Device, ...]]]:
    """Devices of every replica of every stage: slots in order, stage by stage or (`pipelines`) replica by replica."""
    every = (slot(cluster, shape.tp, index) for cluster in order for index in range(slots(cluster, shape.tp)))
    taken = [devices for devices, _ in zip(every, range(pp * shape.slots), strict=False)]
    if pipelines:
        return [taken[stage::pp] for stage in range(pp)]
    return [taken[stage * shape.slots : (stage + 1) * shape.slots] for stage in range(pp)]


def _fits(request: Request, config: ParallelConfig, layers: tuple[int, ...], rows: list[list[tuple[Device, ...]]]) -> bool:
    """Whether every stage fits the smallest of its devices: checked before groups are built, which takes longest."""
    outside = communicators.outside_torch(config)
    for stage, (held, row) in enumerate(zip(layers, rows, strict=True)):
        clusters = {devices[0].cluster: devices[0] for devices in row}
        room = min(request.topology.room(request.topology.fleet.spec(device)) for device in clusters.values())
        flying = schedules.in_flight(config.schedule, stage, config.pp, config.num_microbatches[0], config.vpp)
        ends = stage == 0, stage == config.pp - 1
        inside = (memory.rank_bytes(request.workload, config, held, kept, *ends, late) for kept, late in flying)
        if outside + max(inside) > room:
            return False
    return True
