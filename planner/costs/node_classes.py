"""What a class of alike machines offers to a shape: how many stages, at what cost, in how much memory.

Machines of one cluster are alike. Costs are closed forms of `sim.analytic.costs` on the devices of stages that fill one
node after the other.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from planner.costs.cluster_costs import single
from planner.costs.context import PlanningContext
from planner.placement.leaves import oversubscribed
from planner.request import Request
from planner.space.shapes import Shape, slots, splitting
from sim.analytic.costs import StageCost, weight_seconds
from sim.hardware.cluster import Cluster
from sim.kernels import memory
from sim.plan import schedules
from sim.plan.plan import ParallelConfig

KEPT = 256
"""Shapes whose options a search keeps at hand; older ones are made anew (a guess: a few megabytes)."""


class NodeClass:
    """What one class offers to one shape: costs and memory of its stages by role and layers."""

    def __init__(self, context: PlanningContext, cluster: Cluster, shape: Shape, others: list[Cluster]):
        request = context.request
        self.cluster, self.shape, self.workload = cluster, shape, request.workload
        self.capacity = slots(cluster, shape.tp) // shape.slots
        self.microbatches = shape.microbatches(self.workload)
        self.config = shape.config(self.workload, 2)
        self.costs = context.cluster_costs.stages(cluster, shape)
        self._least = context.cluster_costs.least(cluster, shape)
        self._context, self._others = context, others
        schedule = schedules.get(shape.schedule)
        self.waits, self.splits = not schedule.OVERLAPS_SENDS, schedule.SPLITS_BACKWARD
        self._costs: dict[tuple[str, int], StageCost] = {}
        self._with_messages: dict[tuple[str, int, float, float], StageCost] = {}
        self.shared: dict[tuple[object, ...], Any] = {}
        """What deadline tests of several orders share (`planner.bounds.deadline`)."""
        self._rooms: dict[tuple[str, tuple[tuple[int, int], ...]], int] = {}

    @functools.cached_property
    def plain(self) -> ParallelConfig:
        """The configuration without virtual stages, with which begin and tail are guesses and not bounds."""
        return replace(self.config, vpp=1, schedule="1f1b")

    @functools.cached_property
    def crossing(self) -> float:
        """Least seconds of a message of its stages in a pipeline that leaves the cluster; infinite where none can."""
        return self._context.messages.crossing(self.cluster, self._others, self.shape)

    @functools.cached_property
    def message(self) -> float:
        """An estimate of the least seconds of a message between neighbouring stages; 0 where there is none."""
        one = self.cluster, self.cluster, self.shape
        inside = self._context.messages.least(*one, in_step=True) if self.capacity > 1 else math.inf
        least = min(inside, self.crossing)
        return least if math.isfinite(least) else 0.0

    @property
    def detour(self) -> float:
        """What a message takes longer than the least in a pipeline that leaves the cluster."""
        return self.crossing - self.message if math.isfinite(self.crossing) else 0.0

    @functools.cached_property
    def throughs(self) -> tuple[float, float]:
        """Least seconds of all messages of a node in the midst of a pipeline, inside the cluster and leaving it."""
        return self._context.loads.node_loads(self.cluster, self._others, self.shape)

    @property
    def through(self) -> float:
        """That of a pipeline inside the cluster."""
        return self.throughs[0]

    @property
    def through_crossing(self) -> float:
        """That of a pipeline that leaves it."""
        return self.throughs[1]

    @functools.cached_property
    def alone(self) -> tuple[NodeClass, ...]:
        """The class as a pipeline of one place may have it: its stage fills its nodes or, where that differs, lies evenly."""
        spread = self._context.cluster_costs.spread(self.cluster, self.shape)
        if spread is None:
            return (self,)
        other = copy.copy(self)
        other.costs, other._least, other._costs, other._with_messages = (spread,), {}, {}, {}
        return self, other

    def cost(self, role: str, layers: int) -> StageCost:
        """Costs of a stage in a role: first, middle, last, or only."""
        if (role, layers) not in self._costs:
            ahead = self.message if role in ("first", "middle") else 0.0
            back = self.message if role in ("last", "middle") else 0.0
            self._costs[role, layers] = self.with_messages(role, layers, ahead, back)
        return self._costs[role, layers]

    def with_messages(self, role: str, layers: int, ahead: float, back: float) -> StageCost:
        """Costs of a stage in a role whose messages to the next and to the previous stage take so many seconds."""
        key = role, layers, ahead, back
        if key not in self._with_messages:
            if (role, layers) not in self._least:
                ends, times = (role in ("first", "only"), role in ("last", "only")), self._passes(role, layers)
                self._least[role, layers] = _least([costs.of(layers, *ends, times=times) for costs in self.costs])
            cost = self._least[role, layers]
            sends = (ahead, back, 0.0) if self.waits else (0.0, 0.0, ahead * self.shape.vpp)
            self._with_messages[key] = cost.sending(*sends, cost.weight if self.splits else 0.0)
        return self._with_messages[key]

    def _passes(self, role: str, layers: int) -> tuple[float, float] | None:
        """(forward, backward) seconds of a microbatch, linear in the layers; None under cp and ep, where neighbours count."""
        if max(self.shape.cp, self.shape.ep) > 1:
            return None
        key = self.cluster.name, single(self.shape), role
        if key not in self._context.passes:
            ends = role in ("first", "only"), role in ("last", "only")
            self._context.passes[key] = self.costs[0].passes(1, *ends), self.costs[0].passes(2, *ends)
        one, two = self._context.passes[key]
        return one[0] + (layers - 1) * (two[0] - one[0]), one[1] + (layers - 1) * (two[1] - one[1])

    def single_seconds(self) -> float:
        """Closed form of the step of a pipeline of one stage: a lower bound of what the evaluator says."""
        cost, config = self.cost("only", self.workload.model.layers), shape_alone(self.config)
        closed = cost.begin(0.0, config) + self.microbatches * cost.slot + cost.tail(config)
        return max(closed, self.single_bound)

    @property
    def single_bound(self) -> float:
        """A lower bound of the step of a pipeline of one stage under any schedule, and any ZeRO stage but 0 unless it is 0.

        The virtual stages of a microbatch go forward, and backward, one behind the other: gathers ahead of the forwards end
        before the first microbatch's does, and no reduction begins before the last one's backward. ZeRO 2 and 3 reduce and
        gather as much besides."""
        cost = self.cost("only", self.workload.model.layers)
        gathers = max(cost.gather - cost.forward, 0.0) if self.config.gathers_ahead else cost.gather
        reductions = max(cost.reduce - cost.backward, 0.0) if self.config.reduces_behind else cost.reduce
        return gathers + self.microbatches * cost.both + reductions + cost.optimizer

    def held(self, role: str, layers: int) -> float:
        """Microbatches whose activations fit beside a stage of `layers` layers; negative where not even the weights fit."""
        empty, one = (self.bytes_at(role, layers, held) for held in (0, 1))
        room = self.cluster.node.device.memory - empty
        return math.floor(room / (one - empty) * (1 + 1e-12))

    def bytes_at(self, role: str, layers: int, held: int = 1) -> float:
        """Bytes of a rank of such a stage that holds so many microbatches."""
        ends = role in ("first", "only"), role in ("last", "only")
        config = shape_alone(self.config) if role == "only" else self.config
        inside = memory.place_bytes(self.workload, config, layers, held * config.vpp, *ends)
        return inside + memory.outside_torch(config)

    def room(self, role: str, in_flight: tuple[tuple[int, int], ...]) -> int:
        """Most layers of a place that fit beside what it holds in flight (`schedules.in_flight`); at most all there are."""
        if (role, in_flight) not in self._rooms:
            left = self.cluster.node.device.memory - memory.outside_torch(self.config)
            most = self.workload.model.layers
            for held, deferred in in_flight:
                one, two = (fixed + held * each for fixed, each in self._bytes(role))
                if deferred:
                    one, two = (total + deferred * each for total, each in zip((one, two), self._deferred(role), strict=True))
                most = min(most, math.floor(((left - one) / (two - one) + 1) * (1 + 1e-12)))
            self._rooms[role, in_flight] = max(most, 0)
        return self._rooms[role, in_flight]

    def _bytes(self, role: str) -> tuple[tuple[float, float], ...]:
        """Bytes of a place of one layer and of two: without activations, and for each microbatch in flight.

        `sim.kernels.memory.place_bytes` is linear in the layers and, for given layers, in the microbatches in flight and in
        those that are deferred."""
        key = splitting(self.shape), self.shape.vpp, role
        if key not in self._context.bytes:
            none, held = ([self._place_bytes(role, k, many) for k in (1, 2)] for many in (0.0, 1.0))
            self._context.bytes[key] = tuple((a, b - a) for a, b in zip(none, held, strict=True))
        return self._context.bytes[key]

    def _deferred(self, role: str) -> tuple[float, ...]:
        """Bytes of a place of one layer and of two for each microbatch whose weight gradients wait."""
        key = splitting(self.shape), self.shape.vpp, role
        if key not in self._context.deferred:
            self._context.deferred[key] = tuple(
                self._place_bytes(role, k, 0.0, 1) - none for k, (none, _) in zip((1, 2), self._bytes(role), strict=True)
            )
        return self._context.deferred[key]

    def _place_bytes(self, role: str, layers: int, held: float, deferred: int = 0) -> float:
        ends = role in ("first", "only"), role in ("last", "only")
        config = shape_alone(self.config) if role == "only" else self.config
        return memory.place_bytes(self.workload, config, layers, held, *ends, deferred)

    @property
    def least_held(self) -> int:
        """Microbatches that any stage must hold: one under 1F1B, all under GPipe."""
        return self.microbatches if self.shape.schedule == "gpipe" else 1

    def entry(self, role: str, layers: int) -> tuple[float, float]:
        """(forward, backward) seconds of the virtual stage that work enters first: all of the stage where vpp is 1.

        Of a backward that is split only the gradients of the input, for which the stage before waits.
        """
        share = (layers // self.shape.vpp) / layers
        cost = self.cost(role, layers)
        return cost.forward * share, cost.inputs * share

    @functools.cached_property
    def layer(self) -> tuple[float, float]:
        """(forward, backward) seconds of one microbatch on one layer; they need no gradient groups."""
        if max(self.shape.cp, self.shape.ep) == 1:
            return self._context.cluster_costs.layer(self.cluster, self.shape)
        ones, twos = ([costs.passes(layers, False, False) for costs in self.costs] for layers in (1, 2))
        forward, backward = (min(two[way] - one[way] for one, two in zip(ones, twos, strict=True)) for way in (0, 1))
        return forward, backward

    @functools.cached_property
    def passed(self) -> float:
        """Seconds in which a microbatch passes a layer there and back: its forward and the gradients of its inputs."""
        return self.layer_seconds - weight_seconds(self.cluster.node.device, self.workload, self._splitting, 1, False)

    @functools.cached_property
    def _splitting(self) -> ParallelConfig:
        return splitting(self.shape).config(self.workload, 2)

    @property
    def layer_seconds(self) -> float:
        """Seconds of one microbatch on one layer, forward and backward: what no stage of the class can beat."""
        return sum(self.layer)

    @property
    def waited_for(self) -> float:
        """What share of a stage's microbatch others wait for at least, as it fills and drains.

        Of virtual stages it is the first one's, which of k layers has k // vpp: 1 of 2 vpp - 1 where they divide worst."""
        return self.forward_share if self.splits else 1 / (2 * self.shape.vpp - 1)

    @property
    def forward_share(self) -> float:
        """What share of a layer's work is its forward."""
        return self.layer[0] / self.layer_seconds

    def layers(self, role: str, cutoff: float) -> list[int]:
        """Sizes of a stage that fit memory and can still lead to a step below `cutoff` seconds."""
        found = []
        for layers in range(1, self.workload.model.layers + 1):
            if self.held(role, layers) < self.least_held or self.microbatches * self.cost(role, layers).slot > cutoff:
                break
            found.append(layers)
        return found


def _least(costs: list[StageCost]) -> StageCost:
    """Of stages that lie otherwise on their nodes, the least of every cost: what none of them can beat."""
    if len(costs) == 1:
        return costs[0]
    least = {
        name: min(getattr(cost, name) for cost in costs) for name in ("forward", "backward", "reduce", "gather", "traffic")
    }
    return replace(costs[0], **least)


def shape_alone(config: ParallelConfig) -> ParallelConfig:
    """The configuration of a pipeline of one place."""
    return replace(config, pp=1)


def node_classes(context: PlanningContext, shape: Shape) -> list[NodeClass]:
    """Classes that can hold at least one stage of a shape."""
    if shape not in context.options:
        fitting = [cluster for cluster in context.request.clusters() if holds(context.request, cluster, shape)]
        while len(context.options) >= KEPT:
            del context.options[next(iter(context.options))]
        context.options[shape] = [NodeClass(context, cluster, shape, fitting) for cluster in fitting]
    return context.options[shape]


def under(context: PlanningContext, shape: Shape, classes: Sequence[NodeClass]) -> tuple[NodeClass, ...]:
    """What the same clusters offer to another shape, each of which can hold a stage of it."""
    named = {option.cluster.name: option for option in node_classes(context, shape)}
    return tuple(named[option.cluster.name] for option in classes)


def holds(request: Request, cluster: Cluster, shape: Shape) -> bool:
    """Whether a stage of a shape has room on a cluster, and groups of a cp or ep that is not pinned all stand alike on it:
    whole ones on a node, or each on whole nodes, no narrow spine between them."""
    if cluster.node.count < shape.tp or slots(cluster, shape.tp) < shape.slots:
        return False
    per_node, wishes = cluster.node.count // shape.tp, request.wishes
    free = [degree for degree, wished in ((shape.cp, wishes.cp), (shape.ep, wishes.ep)) if wished is None]
    return not any(per_node % one and (one % per_node or oversubscribed(cluster)) for one in free)
