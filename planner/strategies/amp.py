"""amp: every (tp, dp, pp) over all devices in one fixed order of ranks, ranked by AMP's analytic cost of a step.

AMP (Li et al., NeurIPS 2022, arXiv 2210.07297, section 4; DachengLi1/AMP, cost_het_cluster.py and pipe.py) prices a strategy at

    (m - 1) max t_i + sum t_i + sum e_i + max over stages of 2 (dp - 1) / dp x gradient bytes / bandwidth

with m microbatches, t_i the seconds of one microbatch on stage i, and e_i the seconds of its message between stages i and i +
1, for the slowest pair of neighbours, alone on its link. Where devices differ, the released code takes the mean of their layer
times, weighted by their numbers, so no stage is faster than another. Layers are split for the least (m - 1) max t_i + sum t_i,
and evenly for a single microbatch. Ranks are assigned in the order tensor, data, pipeline along the nodes as listed, so that
the ranks that communicate most are nearest; this is the released placement without its simulated annealing.

Layer seconds and the latency and bandwidth of links are those of this simulator. A message counts in both directions, as t_i
counts forward and backward. AMP models neither memory nor recomputation: here plans that do not fit are skipped, and
recomputation is a further degree. Layers are transformer layers; embedding and head belong to the first and the last one."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import suppress

from planner.costs.context import PlanningContext
from planner.costs.mixed_stages import MixedStageCosts, mixed_costs
from planner.costs.node_classes import NodeClass
from planner.placement.ranks import assemble
from planner.placement.simulation import fastest
from planner.request import Request
from planner.space import lengths
from planner.space.device_slots import StageSlots, cut, devices, minmax_layers, ring, thinned
from planner.space.shape import Shape
from planner.space.shapes import shapes, slots
from sim.errors import Infeasible, NoRoute
from sim.kernels.payloads import gradient_bytes
from sim.plan.plan import Plan

RANKED = 8
SIMULATED = 2
"""Maximum numbers of plans that are built and ranked, and of those that are simulated (guesses)."""


def plan(request: Request, context: PlanningContext) -> Plan:
    """The fastest of the strategies that AMP ranks first. Raises Infeasible where none fits."""
    limit = context.limit
    costs = mixed_costs(context)
    ranked = sorted(_strategies(request, context, costs), key=lambda item: item[0])
    builders = (functools.partial(_build, request, costs, shape, layers) for _, shape, layers in ranked)
    best = fastest(builders, RANKED, SIMULATED, limit)
    if best is None:
        raise Infeasible("amp: no layout over all devices divides the batch and fits the memory")
    return best


def _strategies(
    request: Request, context: PlanningContext, costs: MixedStageCosts
) -> Iterator[tuple[float, Shape, tuple[int, ...]]]:
    """(cost, shape, layers of each stage) of every strategy over all devices."""
    clusters, layers = list(request.clusters()), request.workload.model.layers
    found = []
    for shape in shapes(request, across=True):
        pp, rest = divmod(sum(slots(cluster, shape.tp) for cluster in clusters), shape.slots)
        if rest or not pp * shape.vpp <= layers or any(cluster.node.count % shape.tp for cluster in clusters):
            continue
        m = shape.microbatches(request.workload)
        if not lengths.allows(request, shape, pp) or not shape.is_defined(m, pp):
            continue
        found.append((shape, pp, m))
    for shape, pp, m in thinned(found, request.topology.fleet.devices):
        stage_slots = cut(clusters, shape.tp, shape.slots)
        seconds = mean_seconds(context, shape, pp)
        with suppress(NoRoute):
            given = even(layers, pp) if m == 1 else minmax_layers(seconds, [layers] * pp, layers, shape.vpp)
            if given is not None and min(given) >= shape.vpp:
                stages = [base + k * each for k, (base, each) in zip(given, seconds, strict=True)]
                sync = max(_sync(costs, shape, stage_slots[i], k, (i == 0, i == pp - 1)) for i, k in enumerate(given))
                yield cost(m, stages, costs.messages(shape, stage_slots), sync), shape, given


def cost(microbatches: int, stages: Sequence[float], messages: Sequence[float], sync: float) -> float:
    """AMP's cost of a step, seconds: (m - 1) max t + sum t + sum e + sync."""
    return (microbatches - 1) * max(stages) + sum(stages) + sum(messages) + sync


def even(layers: int, pp: int) -> tuple[int, ...]:
    """The split for a single microbatch: even, the first stages take the remainder."""
    each, more = divmod(layers, pp)
    return tuple(each + (stage < more) for stage in range(pp))


def mean_seconds(context: PlanningContext, shape: Shape, pp: int) -> list[tuple[float, float]]:
    """(s, c) of every stage, which takes s + k c seconds for k layers: the mean over all devices, so all have the same c."""
    options = [NodeClass(context, cluster, shape, []) for cluster in context.request.clusters()]
    total = sum(option.cluster.devices for option in options)

    def mean(role: str, layers: int) -> float:
        return sum(option.cost(role, layers).both * option.cluster.devices for option in options) / total

    each = mean("middle", 2) - mean("middle", 1)
    roles = ["only"] if pp == 1 else ["first", *["middle"] * (pp - 2), "last"]
    bases = {role: mean(role, 1) - each for role in dict.fromkeys(roles)}
    return [(bases[role], each) for role in roles]


def _sync(costs: MixedStageCosts, shape: Shape, stage: StageSlots, layers: int, ends: tuple[bool, bool]) -> float:
    """Seconds of the gradient all-reduce of a stage: a ring over its slowest link."""
    nbytes = sum(size for _, size in gradient_bytes(costs.workload, costs.config(shape, 2), layers, *ends))
    return ring_seconds(shape.slots, nbytes, costs.per_byte(ring(stage, shape.tp)))


def ring_seconds(ranks: int, nbytes: float, per_byte: float) -> float:
    """Seconds of a ring all-reduce: 2 (n - 1) / n x bytes over a link that takes `per_byte` seconds a byte."""
    return 2 * (ranks - 1) / ranks * nbytes * per_byte


def _build(request: Request, costs: MixedStageCosts, shape: Shape, layers: tuple[int, ...]) -> Plan | None:
    """The plan in AMP's order of ranks; None where it exceeds memory. Raises NoRoute or NotDefined (`assemble`)."""
    stage_slots, m = cut(request.clusters(), shape.tp, shape.slots), shape.microbatches(request.workload)
    if any(
        k > costs.most(shape, stage, i, len(stage_slots), m)
        for i, (stage, k) in enumerate(zip(stage_slots, layers, strict=True))
    ):
        return None
    return assemble(request, shape, layers, devices(stage_slots, shape.tp), "amp")
