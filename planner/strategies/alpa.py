"""alpa: layers and devices divided into stages by a dynamic programme, under a bound on the slowest stage.

Alpa (Zheng et al., arXiv 2201.12023, section 5) minimises T = sum of t_i + (B - 1) max t_i over divisions of the model into
stages, with B microbatches and t_i seconds of one of them on stage i: `planner.models.submeshes` has the programme. The
activations of a stage must fit the memory: s microbatches of them on the stage that is s-th from the end.

A plan has one tp and dp for all stages, so every submesh is dp x tp devices of one cluster. The programme chooses the cluster
and the number of layers of each stage. One programme is solved for each shape; Alpa chooses tp and dp in its intra-operator
pass instead. Clusters are visited one after the other along the pipeline: in every order of up to three clusters, else as
listed and in reverse. Not modelled: stages of different shapes in one plan, and sharding operator by operator. As in Alpa,
messages between stages cost nothing (section 7, limitations), and t includes the gradient synchronisation, spread over the
microbatches. Activations in flight are counted as under 1F1B or, where all forwards come first, GPipe; a plan that needs more
memory is dropped. The engine simulates the best-ranked divisions that fit, and the fastest is returned."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass
from planner.models.submeshes import Submeshes, Work, divide
from planner.placement.ranks import build
from planner.placement.simulation import fastest
from planner.request import Request
from planner.space import lengths
from planner.space.shape import Shape
from planner.space.shapes import shapes, slots
from sim.analytic.stage_costs import compute_seconds
from sim.errors import Infeasible
from sim.hardware.cluster import Cluster
from sim.plan.plan import Plan
from sim.units import Seconds

RANKED = 12
"""Number of best divisions that are kept; the largest T of these prunes other shapes."""
SIMULATED = 4
"""Maximum number of plans that are built and simulated."""
RANKS = 12_000
"""Maximum number of ranks of these plans in all, at least one plan: limits the time on large fleets (a guess)."""
CELLS_PER_DEVICE = 2_000
"""Table cells (`submeshes.CELLS`) that looking up the communication costs of one device of a stage counts as (a guess)."""


def plan(request: Request, context: PlanningContext) -> Plan:
    """The fastest of the plans that the dynamic programme ranks first. Raises Infeasible where none fits."""
    work = Work(context.limit)
    ranked = _ranked(request, context, work)
    simulated = max(1, min(SIMULATED, RANKS // request.topology.fleet.devices))
    builders = (partial(build, request, shape, stages, "alpa") for _, shape, stages in ranked)
    best = fastest(builders, simulated, simulated, context.limit)
    if best is None:
        raise Infeasible("alpa: no division of the layers over submeshes of dp x tp devices fits the memory and the batch")
    return best


def _ranked(request: Request, context: PlanningContext, work: Work) -> list[tuple[Seconds, Shape, tuple[tuple[str, int], ...]]]:
    """(T, shape, stages as (cluster, layers)) of divisions, sorted; the first `RANKED` are the best of all.

    Best-first branch and bound (Land and Doig, Econometrica 28(3), 1960). A heap holds every shape with a lower bound on its T:
    at first the bound without tensor-parallel communication (`_floor`), which is cheap. When a shape is first taken from the
    heap, it is put back with the bound that includes this communication; the second time it is divided. Invariant: all shapes
    in the heap have at least the bound of the next shape. So the search stops when that is at least the T of the last division
    kept."""
    found: list[tuple[Seconds, Shape, tuple[tuple[str, int], ...]]] = []
    todo: list[tuple[Seconds, int, Shape, list[NodeClass] | None]] = []
    for index, shape in enumerate(shapes(request)):
        heapq.heappush(todo, (_floor(request, shape), index, shape, None))
    while todo:
        bound, index, shape, classes = heapq.heappop(todo)
        worst = found[RANKED - 1][0] if len(found) >= RANKED else math.inf
        if bound >= worst or (found and work.is_over):
            break
        if classes is None:
            classes = [NodeClass(context, cluster, shape, []) for cluster in _holding(request, shape)]
            work.cells += CELLS_PER_DEVICE * shape.slots * shape.tp * len(classes)
            speeds = [(option.layer_seconds, option.max_stages) for option in classes]
            heapq.heappush(todo, (_bound(request, shape, speeds), index, shape, classes))
            continue
        for order in _orders(classes, _offers(request, shape, classes, worst)):
            names, offers = [option.cluster.name for option, _ in order], [offer for _, offer in order]
            lengths = _lengths(request, shape, offers)
            division = divide(
                offers, request.workload.model.layers, shape.microbatches(request.workload), lengths, shape.vpp, work
            )
            if division is not None:
                found.append((division[0], shape, tuple((names[index], layers) for index, layers in division[1])))
        found.sort(key=lambda item: item[0])
    return found


def _holding(request: Request, shape: Shape) -> list[Cluster]:
    """Clusters that hold at least one submesh of a shape."""
    clusters = (cluster for cluster in request.clusters() if cluster.node.count >= shape.tp)
    return [cluster for cluster in clusters if slots(cluster, shape.tp) >= shape.slots]


def _floor(request: Request, shape: Shape) -> Seconds:
    """A lower bound on T without tensor-parallel communication, which needs no costs of the network."""
    config = shape.config(request.workload, 2)
    speeds = [
        (sum(compute_seconds(c.node.device, request.workload, config, 1, False, False)), slots(c, shape.tp) // shape.slots)
        for c in _holding(request, shape)
    ]
    return _bound(request, shape, speeds)


def _bound(request: Request, shape: Shape, classes: list[tuple[Seconds, int]]) -> Seconds:
    """A lower bound on T for every division of a shape: a relaxation with fractional layers on the fastest submeshes.

    `classes` are (seconds of a layer, number of submeshes) of every cluster. Infinite where there are too few submeshes."""
    layers, m = request.workload.model.layers, shape.microbatches(request.workload)
    most = request.wishes.pp or layers
    speeds = sorted((1 / seconds for seconds, number in classes for _ in range(min(number, most))), reverse=True)[:most]
    if not speeds or len(speeds) < (request.wishes.pp or 1):
        return math.inf
    return (m - 1) * max(layers / sum(speeds), 1 / speeds[0]) + layers / speeds[0] / shape.vpp


def _orders(classes: list[NodeClass], offers: list[Submeshes]) -> Iterator[tuple[tuple[NodeClass, Submeshes], ...]]:
    """Orders of the clusters along the pipeline. Subsets are not listed, because the programme may skip clusters."""
    pairs = tuple(zip(classes, offers, strict=True))
    yield from itertools.permutations(pairs) if len(pairs) <= 3 else (pairs, pairs[::-1])


def _lengths(request: Request, shape: Shape, offers: list[Submeshes]) -> tuple[int, ...]:
    """Numbers of stages that the devices, the layers, the schedule and the wishes allow."""
    most = min(sum(offer.number for offer in offers), request.workload.model.layers // shape.vpp)
    m = shape.microbatches(request.workload)
    return tuple(pp for pp in range(1, most + 1) if lengths.allows(request, shape, pp) and shape.is_defined(m, pp))


def _offers(request: Request, shape: Shape, classes: list[NodeClass], worst: Seconds) -> list[Submeshes]:
    """The submeshes of every class; stages for which T would be at least `worst` are left out."""
    layers, m = request.workload.model.layers, shape.microbatches(request.workload)
    depth = min(sum(option.max_stages for option in classes), request.wishes.pp or layers, layers)
    least = layers * min(option.layer_seconds for option in classes) / shape.vpp
    offers = []
    for option in classes:
        tables = {role: np.full((depth + 1, layers + 1), np.inf) for role in ("first", "middle", "last", "only")}
        for role, table in tables.items():
            for k in range(shape.vpp, layers + 1):
                seconds, held = _seconds(option, role, k), option.memory.held(role, k)
                if held < option.least_held or (m - 1) * seconds + least >= worst:
                    break
                table[1 : (depth if held >= m else min(depth, int(held))) + 1, k] = seconds
        first, other = tables["first"], tables["middle"]
        first[1], other[1] = tables["only"][1], tables["last"][1]
        offers.append(Submeshes(min(option.max_stages, depth), first, other))
    return offers


def _seconds(option: NodeClass, role: str, layers: int) -> Seconds:
    """t of a stage: a microbatch forward and backward, and its share of the gradient synchronisation."""
    cost = option.cost(role, layers)
    if option.config.reduces_each_microbatch:
        return cost.both + cost.traffic
    return cost.both + (cost.reduce + cost.gather) / option.microbatches
