"""holmes: data-parallel groups inside one NIC environment, the pipeline across them, layers by the speed of each environment.

Holmes (arXiv 2312.03549, section 3): cross-cluster pipeline parallelism with automatic NIC selection, and the self-adapting
partition that gives environment i floor(alpha x S(i) / sum of S x layers) layers, where alpha = 1.05 and S(i) is its measured
speed; the last environment gets the remaining layers. The released code (zhejianglab/Holmes dadcc08) takes these numbers from
the user; with S measured and alpha = 1 the rule gives the released splits 26 | 22 and 16 | 14. Here S(i) is the closed form of
the environment's own homogeneous cluster under the same shape. Inside an environment layers are spread evenly over its stages,
and all devices are used."""

from __future__ import annotations

import functools
import itertools
import math

from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass, node_classes
from planner.placement.ranks import build
from planner.placement.simulation import fastest
from planner.request import Request
from planner.search.evaluation import PipelineEvaluation
from planner.space import lengths
from planner.space.shape import Shape
from planner.space.shapes import shapes
from sim.errors import Infeasible
from sim.plan.plan import Plan

ALPHA = 1.05
"""alpha of the self-adapting partition, as in the paper."""
RANKED = 12
SIMULATED = 3
"""Maximum numbers of plans that are built and ranked, and of those that are simulated (guesses)."""


def plan(request: Request, context: PlanningContext) -> Plan:
    """The fastest layout that the rule gives. Raises Infeasible where none fits."""
    ranked: list[tuple[float, Shape, tuple[tuple[str, int], ...]]] = []
    limit = context.quick_limit()
    for shape in shapes(request):
        if ranked and limit.is_up():
            break
        classes = node_classes(context, shape)
        stages = _stages(request, classes)
        if stages is not None:
            ranked.append((_seconds(context, shape, classes, stages), shape, stages))
    ranked.sort(key=lambda item: item[0])
    builders = (functools.partial(_build, request, context, shape, stages) for _, shape, stages in ranked)
    best = fastest(builders, RANKED, SIMULATED, limit)
    if best is None:
        raise Infeasible("holmes: no layout of whole stages per cluster fits the memory and the batch")
    return best


def _build(request: Request, context: PlanningContext, shape: Shape, stages: tuple[tuple[str, int], ...]) -> Plan | None:
    """The plan of a layout; None where a stage exceeds its memory. Raises NoRoute or NotDefined (`build`)."""
    classes = node_classes(context, shape)
    number = {option.cluster.name: i for i, option in enumerate(classes)}
    capacity = PipelineEvaluation(context, shape, tuple(classes)).layer_capacity([number[name] for name, _ in stages])
    fits = all(layers <= most for (_, layers), most in zip(stages, capacity, strict=True))
    return build(request, shape, stages, "holmes") if fits else None


def layers_by_speed(speeds: list[float], layers: int) -> list[int]:
    """floor(alpha x S(i) / sum of S x layers) for every environment but the last, which takes the rest."""
    given = [math.floor(ALPHA * speed / sum(speeds) * layers) for speed in speeds[:-1]]
    return [*given, layers - sum(given)]


def _stages(request: Request, classes: list[NodeClass]) -> tuple[tuple[str, int], ...] | None:
    """(cluster, layers) of every stage, or None where a stage gets no layers or not all clusters or the pinned pp are used."""
    layers = request.workload.model.layers
    pp = sum(option.max_stages for option in classes)
    if len(classes) < len(list(request.clusters())) or not lengths.allows(request, classes[0].shape, pp) or pp > layers:
        return None
    shares = layers_by_speed([_speed(option, layers) for option in classes], layers)
    stages: list[tuple[str, int]] = []
    for option, share in zip(classes, shares, strict=True):
        if share < option.max_stages:
            return None
        for stage in range(option.max_stages):
            even, more = divmod(share, option.max_stages)
            stages.append((option.cluster.name, even + (stage >= option.max_stages - more)))
    shape = classes[0].shape
    if not shape.is_defined(shape.microbatches(request.workload), pp) or min(k for _, k in stages) < shape.vpp:
        return None
    return tuple(stages)


def _speed(option: NodeClass, layers: int) -> float:
    """S(i): samples per second of an environment alone, up to a constant, as an even pipeline over its own stages."""
    cost = option.cost("middle", math.ceil(layers / option.max_stages))
    config = option.config
    fill = (option.max_stages - 1) * cost.both / option.shape.vpp
    return 1 / (cost.begin(0.0, config) + option.microbatches * cost.cycle + fill + cost.tail(config))


def _seconds(context: PlanningContext, shape: Shape, classes: list[NodeClass], stages: tuple[tuple[str, int], ...]) -> float:
    """Closed form of a pipeline: the slowest stage with its border message for m - 1 microbatches, and all stages once."""
    by_name = {option.cluster.name: option for option in classes}
    costs_of = [(by_name[name], by_name[name].cost("middle", layers)) for name, layers in stages]
    borders = [context.messages.least(a.cluster, b.cluster, shape, together=0) for a, b in itertools.pairwise(classes)]
    slowest = max(max(cost.cycle, cost.both + max(borders, default=0.0)) for _, cost in costs_of)
    fill = sum(cost.both for _, cost in costs_of) / shape.vpp
    tail = max(cost.tail(option.config) for option, cost in costs_of)
    return (shape.microbatches(context.request.workload) - 1) * slowest + fill + tail
