"""hethub: three levels, the pipeline across types of accelerators, data and tensor parallelism inside them, layers by speed.

HETHUB (arXiv 2405.16256, the automatic parallel planner) searches level by level: which stages of the pipeline stand on which
type of accelerator, how many replicas a stage has there, how many devices of a node share a layer; layers are spread unevenly
over the stages by their predicted times, and the predictor of a step ranks the leaves. Here a type takes part with all its
devices, so that (tp, dp) decides how many stages each has, and types come in every order. A stage never mixes types, but it may
stand on several clusters of one type, for NICs are no level of this search. Layers are given so that the slowest stage takes
least within its memory. The predictor is our closed forms in the form that the paper's pipeline has: the slowest stage for
every microbatch but one, every stage and message once, and the longest gradient sum and optimizer.

Left out: degrees that differ from type to type, for a plan has one tp and one dp; fewer devices than there are. The paper
profiles small clusters and extrapolates; our layer seconds and paces stand in for its profiles."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from planner.costs.context import PlanningContext
from planner.costs.mixed_stages import MixedStageCosts
from planner.placement.ranks import assemble
from planner.placement.simulation import fastest
from planner.request import Request
from planner.search.shortlist import shortlist
from planner.space.device_slots import Stand, cut, devices, level, orders, thinned
from planner.space.shapes import Shape, shapes, slots
from sim.errors import Infeasible, PlanError
from sim.plan import schedules
from sim.plan.plan import Plan

RANKED = 8
PLAYED = 3


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf of the search and the seconds of a step that are predicted for it."""

    seconds: float
    shape: Shape
    stands: tuple[Stand, ...]
    layers: tuple[int, ...]


def plan(request: Request, context: PlanningContext) -> Plan:
    """The fastest of the best leaves. Raises Infeasible where no leaf fits."""
    deadline = time.monotonic() + request.time_limit
    costs = MixedStageCosts(context)
    rough = ((seconds, place) for place in _places(request) for seconds in _compute(costs, *place))
    leaves = shortlist(rough, lambda place: _leaf(costs, *place), RANKED, deadline)
    best = fastest((functools.partial(_build, request, leaf) for leaf in leaves), RANKED, PLAYED, deadline)
    if best is None:
        raise Infeasible("hethub: no tp and dp give every type of accelerator whole stages that fit the memory and the batch")
    return best


def _places(request: Request) -> Iterator[tuple[Shape, tuple[Stand, ...]]]:
    """Every shape and its stages, type by type, the types in every order."""
    every, layers, pinned = orders(request), request.workload.model.layers, request.wishes.pp
    found = []
    for shape in shapes(request, across=True):
        counts = [sum(slots(cluster, shape.tp) for cluster in alike) // shape.slots for alike in every[0]]
        if all(counts) and sum(counts) * shape.vpp <= layers and pinned in (None, sum(counts)):
            found += [(shape, order) for order in every]
    for shape, order in thinned(found, request.topology.fleet.devices):
        yield shape, tuple(stand for alike in order for stand in cut(alike, shape.tp, shape.slots))


def _leaf(costs: MixedStageCosts, shape: Shape, stands: tuple[Stand, ...]) -> Iterator[Leaf]:
    """The leaf of a shape on its stages and its prediction; nothing where it does not fit."""
    with suppress(PlanError):
        layers = split(costs, shape, stands)
        if layers is not None:
            yield Leaf(predict(costs, shape, stands, layers), shape, stands, layers)


def _compute(costs: MixedStageCosts, shape: Shape, stands: tuple[Stand, ...]) -> Iterator[float]:
    """Seconds of a leaf's compute if memory were no limit; nothing where there is none."""
    with suppress(PlanError):
        layers = split(costs, shape, stands, limited=False)
        if layers is not None:
            stages = [s + k * c for k, (s, c) in zip(layers, _seconds(costs, shape, stands), strict=True)]
            yield (shape.microbatches(costs.workload) - 1) * max(stages) + sum(stages) / shape.vpp


def _seconds(costs: MixedStageCosts, shape: Shape, stands: tuple[Stand, ...]) -> list[tuple[float, float]]:
    return [costs.line_seconds(shape, stand, (i == 0, i == len(stands) - 1)) for i, stand in enumerate(stands)]


def split(costs: MixedStageCosts, shape: Shape, stands: tuple[Stand, ...], limited: bool = True) -> tuple[int, ...] | None:
    """Layers of every stage, so that the slowest takes least; None where they do not fit the memory, if that is a limit."""
    pp, m, layers = len(stands), shape.microbatches(costs.workload), costs.workload.model.layers
    most = [costs.most(shape, stand, i, pp, m) if limited else layers for i, stand in enumerate(stands)]
    return level(_seconds(costs, shape, stands), most, layers, shape.vpp)


def predict(costs: MixedStageCosts, shape: Shape, stands: tuple[Stand, ...], layers: tuple[int, ...]) -> float:
    """Predicted seconds of a step: (m - 1) x slowest stage + stages / vpp + messages + longest tail.

    Where the schedule does not overlap messages, a stage is held up by those that it sends for every microbatch.
    """
    pp, m = len(stands), shape.microbatches(costs.workload)
    found = [
        costs.cost(shape, stand, k, (i == 0, i == pp - 1)) for i, (stand, k) in enumerate(zip(stands, layers, strict=True))
    ]
    config = costs.config(shape, pp)
    messages = costs.messages(shape, stands)
    waits = 0.0 if schedules.get(shape.schedule).OVERLAPS_SENDS else 0.5  # of a border's two messages each stage sends one
    sent = [waits * (ahead + back) for ahead, back in zip([*messages, 0.0], [0.0, *messages], strict=True)]
    slowest = max(max(cost.slot, cost.both + out) for cost, out in zip(found, sent, strict=True))
    fill = sum(cost.both for cost in found) / shape.vpp + sum(messages)
    return (m - 1) * slowest + fill + max(cost.tail(config) for cost in found)


def _build(request: Request, leaf: Leaf) -> Plan:
    return assemble(request, leaf.shape, leaf.layers, devices(leaf.stands, leaf.shape.tp), "hethub")
