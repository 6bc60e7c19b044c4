"""Node classes: the equal nodes of one cluster under one shape, with the number, costs and memory of their stages.

Costs are closed forms of `sim.analytic.stage_costs` for stages that fill one node after the other."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from planner.costs.block_memory import BlockMemory
from planner.costs.cluster_costs import have_equal_positions, passing_alike
from planner.costs.context import PlanningContext
from planner.costs.least_memory import LeastMemory
from planner.costs.stage_memory import StageMemory
from planner.placement.leaves import oversubscribed
from planner.request import Request
from planner.space.shape import Shape, split_backward
from planner.space.shapes import stage_slots
from sim.analytic.stage_amounts import weight_seconds
from sim.analytic.stage_costs import StageCost, StageCosts
from sim.field_changes import changed
from sim.hardware.cluster import Cluster
from sim.plan import schedules
from sim.plan.parallel_config import BLOCK, ParallelConfig

Memory: TypeAlias = StageMemory | BlockMemory | LeastMemory
"""What says how many layers and microbatches fit on the devices of a class."""
KEPT = 2048
"""Number of shapes whose node classes are cached (a guess: some dozen megabytes). Older ones are computed again."""


class NodeClass:
    """Costs and memory of the stages of one class under one shape, by role (first, middle, last, only) and layers.

    own: the shape of its stages by themselves (`Shape.on`); max_stages: most stages of the class in a pipeline; memory: layers
    and microbatches that fit; waits: ranks wait for their messages to leave; splits: the schedule splits the backward."""

    def __init__(self, context: PlanningContext, cluster: Cluster, shape: Shape, others: list[Cluster]):
        request = context.request
        self.cluster, self.shape, self.own, self.workload = cluster, shape, shape.on(cluster.name), request.workload
        self.max_stages = most_stages(request, cluster, shape)
        self.microbatches = shape.microbatches(self.workload)
        self._context, self._others = context, others
        self.waits = not (schedule := schedules.get(shape.schedule)).OVERLAPS_SENDS
        self.splits = schedule.SPLITS_BACKWARD
        self._costs: dict[tuple[str, int, int], StageCost] = {}
        self._with_messages: dict[tuple[str, int, float, float, int], StageCost] = {}
        self.shared: dict[tuple[object, ...], Any] = {}  # a cache of what callers compute of several classes
        self.memory: Memory = (BlockMemory if shape.recompute == BLOCK else StageMemory)(context, cluster, self.own)

    @functools.cached_property
    def config(self) -> ParallelConfig:
        """The configuration of its stages by themselves, in a pipeline of two."""
        return self.own.config(self.workload, 2)

    @functools.cached_property
    def costs(self) -> tuple[StageCosts, ...]:
        """Costs of a stage among others, one entry for each position on its nodes."""
        return self._context.cluster_costs.stages(self.cluster, self.shape)

    @functools.cached_property
    def alone(self) -> tuple[StageCosts, ...]:
        """Costs of the only stage of a pipeline, likewise."""
        return self._context.cluster_costs.stages(self.cluster, self.shape, alone=True)

    @functools.cached_property
    def _least(self) -> dict[tuple[str, int], StageCost]:
        return self._context.cluster_costs.least(self.cluster, self.shape)

    @functools.cached_property
    def without_virtual_stages(self) -> ParallelConfig:
        """The configuration without virtual stages. Begin and tail computed with it are estimates, not bounds."""
        return changed(self.config, vpp=1, schedule="1f1b")

    @functools.cached_property
    def crossing(self) -> float:
        """An estimate of the least seconds of a message in a pipeline that leaves the cluster; infinite if none can."""
        return self._context.messages.crossing(self.cluster, self._others, self.shape)

    @functools.cached_property
    def message(self) -> float:
        """An estimate of the least seconds of a message between neighbouring stages; 0 where there are none."""
        one = self.cluster, self.cluster, self.shape
        inside = self._context.messages.least(*one, together=0) if self.max_stages > 1 else math.inf
        least = min(inside, self.crossing)
        return least if math.isfinite(least) else 0.0

    @property
    def detour(self) -> float:
        """Extra seconds of a message, over `message`, in a pipeline that leaves the cluster."""
        return self.crossing - self.message if math.isfinite(self.crossing) else 0.0

    @functools.cached_property
    def node_loads(self) -> tuple[float, float]:
        """Least seconds of one microbatch's messages at a node with stages before and after it (`MessageLoads.node_loads`).

        Returns (in a pipeline inside the cluster, in a pipeline that leaves the cluster)."""
        return self._context.loads.node_loads(self.cluster, self._others, self.shape)

    @functools.cached_property
    def as_single_stage(self) -> tuple[NodeClass, ...]:
        """The class for a pipeline of one stage: filling node after node and, where that differs, spread evenly over nodes."""
        spread = self._context.cluster_costs.spread(self.cluster, self.shape)
        if spread is None:
            return (self,)
        other = copy.copy(self)
        other.alone, other._least, other._costs, other._with_messages = (spread,), {}, {}, {}
        return self, other

    def cost(self, role: str, layers: int, recomputed: int = 0) -> StageCost:
        """Costs of a stage in a role, with the estimated least messages; `recomputed` as in `with_messages`."""
        if (key := (role, layers, recomputed)) not in self._costs:
            ahead = self.message if role in ("first", "middle") else 0.0
            back = self.message if role in ("last", "middle") else 0.0
            self._costs[key] = self.with_messages(role, layers, ahead, back, recomputed)
        return self._costs[key]

    def with_messages(self, role: str, layers: int, ahead: float, back: float, recomputed: int = 0) -> StageCost:
        """Costs of a stage whose messages to the next and to the previous stage take `ahead` and `back` seconds.

        recomputed: number of layers that it recomputes, where the shape leaves this to the stages (`BLOCK`)."""
        key = role, layers, ahead, back, recomputed
        if key not in self._with_messages:
            if (role, layers) not in self._least:
                ends, times = (role in ("first", "only"), role in ("last", "only")), self._passes(role, layers)
                self._least[role, layers] = least_of([costs.of(layers, *ends, times=times) for costs in self._costs_of(role)])
            cost = self._least[role, layers]
            if recomputed:
                again = self._context.cluster_costs.recomputation(self.cluster, self.shape, role == "only")
                cost = cost.lengthened(recomputed * again)
            sends = (ahead, back, 0.0) if self.waits else (0.0, 0.0, ahead * self.shape.vpp)
            self._with_messages[key] = cost.sending(*sends, cost.weight if self.splits else 0.0)
        return self._with_messages[key]

    def _costs_of(self, role: str) -> tuple[StageCosts, ...]:
        """Costs of a stage in a role, once for all positions that have the same."""
        return tuple(dict.fromkeys(self.alone if role == "only" else self.costs))

    def least_reduce(self, role: str, layers: int, reduce: float) -> float:
        """Least seconds of a stage's gradient reduction under any searched ZeRO stage; `reduce` are those under its own.

        ZeRO 2 and 3 reduce-scatter gradients, also where software all-reduces them under ZeRO 1. Either may be faster: a
        reduce-scatter moves half the bytes, an all-reduce may run as a tree or in a switch."""
        own = self._context.request.wishes.zero_stage is not None or self.shape.zero_stage != 1
        if own or self.config.reduction != "all_reduce":
            return reduce
        ends = role in ("first", "only"), role in ("last", "only")
        scattering = (replace(one, config=replace(one.config, all_reduces=False)) for one in self._costs_of(role))
        return min(reduce, *(costs.of(layers, *ends, times=(0.0, 0.0)).reduce for costs in scattering))

    def _passes(self, role: str, layers: int) -> tuple[float, float] | None:
        """(forward, backward) seconds of a microbatch, linear in the layers; None where cp or ep divide them over ranks at
        unequal positions on the nodes, or beside gathers of parameters."""
        own, gathers = self.own, self.config.shards_parameters
        divided = max(own.cp, own.expert_rows) > 1
        if divided and (gathers or not have_equal_positions(self.cluster, own)):
            return None
        alike = passing_alike(self.cluster, own)
        key = self.cluster.name, alike, gathers, role
        if key not in self._context.passes:
            ends = role in ("first", "only"), role in ("last", "only")
            costs = self._context.cluster_costs.stages(self.cluster, own if gathers else alike, role == "only")[0]
            self._context.passes[key] = costs.passes(1, *ends), costs.passes(2, *ends)
        one, two = self._context.passes[key]
        return one[0] + (layers - 1) * (two[0] - one[0]), one[1] + (layers - 1) * (two[1] - one[1])

    @property
    def least_held(self) -> int:
        """Microbatches whose activations every stage must hold: all where all forwards come first, as in GPipe, else one."""
        return self.microbatches if schedules.forwards_first(self.shape.schedule) else 1

    def entry(self, role: str, layers: int) -> tuple[float, float]:
        """(forward, backward) seconds of the first virtual stage of a stage; of the whole stage where vpp is 1.

        Of a split backward only the gradients of inputs (B) count, because the stage before waits for them only."""
        share = (layers // self.shape.vpp) / layers
        cost = self.cost(role, layers)
        return cost.forward * share, cost.inputs * share

    @functools.cached_property
    def layer(self) -> tuple[float, float]:
        """(forward, backward) seconds of one microbatch on one layer, in a pipeline of two stages or more."""
        return self._layer(False)

    def _layer(self, alone: bool) -> tuple[float, float]:
        return self._context.cluster_costs.layer(self.cluster, self.shape, alone)

    @functools.cached_property
    def layer_seconds_alone(self) -> float:
        """Seconds of one microbatch on one layer in a pipeline of one stage: at most `layer_seconds`, and a bound for all."""
        return sum(self._layer(True)) if self.cluster.node.device.launch_per_rank else self.layer_seconds

    @functools.cached_property
    def passed(self) -> float:
        """Seconds of one microbatch on one layer without weight gradients: its forward and the gradients of its inputs."""
        return self.layer_seconds - weight_seconds(self.cluster.node.device, self.workload, self._splitting, 1, False)

    @functools.cached_property
    def _splitting(self) -> ParallelConfig:
        return split_backward(self.own).config(self.workload, 2)

    @functools.cached_property
    def layer_seconds(self) -> float:
        """Seconds of one microbatch on one layer, forward and backward: a lower bound for stages that are not alone."""
        return sum(self.layer)

    @property
    def waited_for(self) -> float:
        """Least fraction of a stage's work on a microbatch for which other stages wait while the pipeline fills and drains.

        With virtual stages, other stages wait for the first one, which has k // vpp of k layers: at least a fraction 1 / (2 vpp
        - 1)."""
        return self.forward_share if self.splits else 1 / (2 * self.shape.vpp - 1)

    @property
    def forward_share(self) -> float:
        """Fraction of a layer's seconds that is its forward."""
        return self.layer[0] / self.layer_seconds

    def layers(self, role: str, cutoff: float) -> list[int]:
        """Sizes (layers) of a stage that fit in memory and whose cycles for all microbatches do not exceed `cutoff` seconds."""
        found = []
        for layers in range(1, self.workload.model.layers + 1):
            if self.memory.held(role, layers) < self.least_held or self.microbatches * self.cost(role, layers).cycle > cutoff:
                break
            found.append(layers)
        return found


def least_of(costs: list[StageCost]) -> StageCost:
    """The least value of each cost over all positions of a stage on its nodes."""
    if len(costs) == 1:
        return costs[0]
    by_position = ("forward", "backward", "reduce", "gather", "traffic")
    return costs[0]._replace(**{name: min(getattr(cost, name) for cost in costs) for name in by_position})


def node_classes(context: PlanningContext, shape: Shape) -> list[NodeClass]:
    """Classes that have the slots for at least one stage of a shape; cached for the `KEPT` latest shapes."""
    if shape not in context.options:
        fitting = [cluster for cluster in context.request.clusters() if holds(context.request, cluster, shape)]
        while len(context.options) >= KEPT:
            del context.options[next(iter(context.options))]
        context.options[shape] = [NodeClass(context, cluster, shape, fitting) for cluster in fitting]
    return context.options[shape]


def leanest(context: PlanningContext, shape: Shape, zero_stages: Sequence[int]) -> list[NodeClass]:
    """The classes of a shape with the least memory that a stage needs under any of these ZeRO stages, and the passes of the
    least of them: under ZeRO 3 they are longer."""
    every = [node_classes(context, changed(shape, zero_stage=stage)) for stage in sorted(set(zero_stages))]
    if len(every) == 1:
        return every[0]
    found = []
    for alike in zip(*every, strict=True):
        holder = copy.copy(alike[0])
        holder.memory, holder.shared = LeastMemory([option.memory for option in alike]), {}
        found.append(holder)
    return found


def under(context: PlanningContext, shape: Shape, classes: Sequence[NodeClass]) -> tuple[NodeClass, ...]:
    """The classes of the same clusters, in the same order, under another shape. Each must have the slots for a stage of it."""
    named = {option.cluster.name: option for option in node_classes(context, shape)}
    return tuple(named[option.cluster.name] for option in classes)


def most_stages(request: Request, cluster: Cluster, shape: Shape) -> int:
    """Most stages of a shape on a cluster, by its slots and by the rent that the request allows."""
    by_slots, by_rent = stage_slots(cluster, shape) // shape.slots, request.limits.stages_on(cluster, shape)
    return by_slots if by_rent is None else min(by_slots, by_rent)


def holds(request: Request, cluster: Cluster, shape: Shape) -> bool:
    """Whether a cluster has the slots for a stage of a shape that the limits allow there, and all its cp and ep groups have
    equal positions on the nodes.

    Positions are equal if whole groups fill a node, or each group fills whole nodes without an oversubscribed spine. A pinned
    cp or ep is accepted at any positions where dp divides the batch: else the slowest replicas may be those with fewer
    microbatches, and costs are those of the slowest with the most."""
    if cluster.node.count < shape.tp_on(cluster.name) or not most_stages(request, cluster, shape):
        return False
    if not request.limits.allows_on(cluster.name, shape.on(cluster.name)):
        return False
    per_node, wishes = cluster.node.count // shape.tp_on(cluster.name), request.wishes
    degrees, equal = ((shape.cp, wishes.cp), (shape.expert_rows, wishes.ep)), shape.divides(request.workload)
    alike = [degree for degree, wished in degrees if wished is None or not equal]
    return not any(per_node % one and (one % per_node or oversubscribed(cluster)) for one in alike)
