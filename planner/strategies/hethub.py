"""hethub: a search tree of three levels: the pipeline across device types, data and tensor parallelism inside a type.

The levels of HETHUB's search tree (arXiv 2405.16256, the automatic parallel planner) are: the type of accelerator of each
pipeline stage, the number of replicas of the stage, and the number of devices of a node that share a layer. Layers are divided
over the stages by their predicted times, and the predicted step ranks the leaves of the tree. Here all devices of every type
are used, so (tp, dp) determines the number of stages of each type, and types come in every order. A stage never mixes types,
but it may span several clusters of one type, because the search ignores NICs. Layers are divided for the least time of the
slowest stage within the memory. The predictor combines the closed forms of this simulator as the paper does: the slowest stage
for every microbatch but one, every stage and message once, and the longest gradient all-reduce and optimizer.

Not modelled: degrees that differ from type to type, because a plan has one tp and one dp; using fewer devices than there are.
The paper profiles small clusters and extrapolates; layer seconds and communication costs of this simulator replace its
profiles."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from planner.costs.context import PlanningContext
from planner.costs.mixed_stages import MixedStageCosts, mixed_costs
from planner.placement.ranks import assemble
from planner.placement.simulation import fastest
from planner.request import Request
from planner.search.shortlist import shortlist
from planner.space import lengths
from planner.space.device_slots import StageSlots, cut, devices, minmax_layers, orders, thinned
from planner.space.shape import Shape
from planner.space.shapes import shapes, slots
from sim.errors import Infeasible, NoRoute, NotDefined
from sim.plan import schedules
from sim.plan.plan import Plan

RANKED = 8
SIMULATED = 3
"""Maximum numbers of plans that are built and ranked, and of those that are simulated (guesses)."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf of the search tree: a layout, and the predicted seconds of its step."""

    seconds: float
    shape: Shape
    stage_slots: tuple[StageSlots, ...]
    layers: tuple[int, ...]


def plan(request: Request, context: PlanningContext) -> Plan:
    """The fastest of the best leaves. Raises Infeasible where no leaf fits."""
    limit = context.limit
    costs = mixed_costs(context)
    rough = ((seconds, placement) for placement in _placements(request) for seconds in _compute(costs, *placement))
    leaves = shortlist(rough, lambda placement: _leaf(costs, *placement), RANKED, limit)
    best = fastest((functools.partial(_build, request, leaf) for leaf in leaves), RANKED, SIMULATED, limit)
    if best is None:
        raise Infeasible("hethub: no tp and dp give every type of accelerator whole stages that fit the memory and the batch")
    return best


def _placements(request: Request) -> Iterator[tuple[Shape, tuple[StageSlots, ...]]]:
    """Every shape with the slots of its stages, type by type, for every order of the types."""
    every, layers = orders(request), request.workload.model.layers
    found = []
    for shape in shapes(request, across=True):
        counts = [sum(slots(cluster, shape.tp) for cluster in alike) // shape.slots for alike in every[0]]
        if all(counts) and sum(counts) * shape.vpp <= layers and lengths.allows(request, shape, sum(counts)):
            found += [(shape, order) for order in every]
    for shape, order in thinned(found, request.topology.fleet.devices):
        yield shape, tuple(stage for alike in order for stage in cut(alike, shape.tp, shape.slots))


def _leaf(costs: MixedStageCosts, shape: Shape, stage_slots: tuple[StageSlots, ...]) -> Iterator[Leaf]:
    """The leaf of a shape on its stages, with its prediction; nothing where it does not fit."""
    with suppress(NoRoute, NotDefined):
        layers = split(costs, shape, stage_slots)
        if layers is not None:
            yield Leaf(predict(costs, shape, stage_slots, layers), shape, stage_slots, layers)


def _compute(costs: MixedStageCosts, shape: Shape, stage_slots: tuple[StageSlots, ...]) -> Iterator[float]:
    """Seconds of a leaf's compute without the memory limit; nothing where there is no such leaf."""
    with suppress(NoRoute, NotDefined):
        layers = split(costs, shape, stage_slots, limited=False)
        if layers is not None:
            stages = [s + k * c for k, (s, c) in zip(layers, _seconds(costs, shape, stage_slots), strict=True)]
            yield (shape.microbatches(costs.workload) - 1) * max(stages) + sum(stages) / shape.vpp


def _seconds(costs: MixedStageCosts, shape: Shape, stage_slots: tuple[StageSlots, ...]) -> list[tuple[float, float]]:
    return [costs.linear_seconds(shape, stage, (i == 0, i == len(stage_slots) - 1)) for i, stage in enumerate(stage_slots)]


def split(
    costs: MixedStageCosts, shape: Shape, stage_slots: tuple[StageSlots, ...], limited: bool = True
) -> tuple[int, ...] | None:
    """Layers of every stage with the least time of the slowest; None where they do not fit the memory, if `limited`."""
    pp, m, layers = len(stage_slots), shape.microbatches(costs.workload), costs.workload.model.layers
    most = [costs.most(shape, stage, i, pp, m) if limited else layers for i, stage in enumerate(stage_slots)]
    return minmax_layers(_seconds(costs, shape, stage_slots), most, layers, shape.vpp)


def predict(costs: MixedStageCosts, shape: Shape, stage_slots: tuple[StageSlots, ...], layers: tuple[int, ...]) -> float:
    """Predicted seconds of a step: (m - 1) x slowest stage + stages / vpp + messages + longest tail.

    Where the schedule does not overlap messages, a stage waits for those that it sends for every microbatch.
    """
    pp, m = len(stage_slots), shape.microbatches(costs.workload)
    found = [
        costs.cost(shape, stage, k, (i == 0, i == pp - 1)) for i, (stage, k) in enumerate(zip(stage_slots, layers, strict=True))
    ]
    config = costs.config(shape, pp)
    messages = costs.messages(shape, stage_slots)
    waits = 0.0 if schedules.get(shape.schedule).OVERLAPS_SENDS else 0.5  # each stage sends one of the two messages of a border
    sent = [waits * (ahead + back) for ahead, back in zip([*messages, 0.0], [0.0, *messages], strict=True)]
    slowest = max(max(cost.cycle, cost.both + out) for cost, out in zip(found, sent, strict=True))
    fill = sum(cost.both for cost in found) / shape.vpp + sum(messages)
    return (m - 1) * slowest + fill + max(cost.tail(config) for cost in found)


def _build(request: Request, leaf: Leaf) -> Plan:
    return assemble(request, leaf.shape, leaf.layers, devices(leaf.stage_slots, leaf.shape.tp), "hethub")
