"""Costs and memory of the stages of one cluster for a model whose layers differ, by the layers that a stage holds.

Stages that hold as many layers of each kind, and the same ends, cost the same, so each such content is computed once. Seconds
are closed forms of `sim.analytic.stage_costs`, bytes those of `sim.kernels.memory`: those of `planner.costs.node_classes`,
but of the stage's own layers."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from planner.costs.context import PlanningContext
from planner.costs.layer_kinds import Counts, Ends, Layers
from planner.costs.node_classes import holds, least_of, most_stages
from planner.costs.stage_memory import single_stage_config
from planner.costs.unlike_passes import KindSeconds, LinearPasses, layer_seconds
from planner.space.shape import Shape, split_backward
from sim.analytic.stage_costs import StageCost, StageCosts
from sim.hardware.cluster import Cluster
from sim.kernels import communicators, compute, memory
from sim.plan import schedules
from sim.units import Bytes, Seconds


@dataclass(frozen=True, slots=True)
class KindBytes:
    """Bytes of a layer of a kind: beside one microbatch in flight, of each further one, and of each that waits for W."""

    beside_one: Bytes
    further: Bytes
    waiting: Bytes

    def beside(self, held: float, waits: float) -> Bytes:
        """Bytes of a layer beside so many microbatches, between F and B and between B and W."""
        return self.beside_one + (held - 1.0) * self.further + waits * self.waiting


class RankBytes(NamedTuple):
    """Bytes of a rank: fixed ones, those of each microbatch in flight on one virtual stage, of each that waits for W, and of
    the logits of each in the head."""

    fixed: Bytes
    each: Bytes
    waiting: Bytes
    head: Bytes

    def beside(self, held: float, waits: float, ahead: float) -> Bytes:
        """All bytes beside so many microbatches between F and B, and between B and W; `ahead`: `UnlikeStages.ahead_of_head`."""
        return self.fixed + held * self.each + waits * self.waiting + max(1.0, held - ahead) * self.head


class UnlikeCosts:
    """Costs of the stages of all clusters of a request, shared by its shapes."""

    def __init__(self, context: PlanningContext):
        self.context, self.layers = context, Layers(context.request.workload)
        self._cached: dict[tuple[object, ...], dict[object, Any]] = {}

    def classes(self, shape: Shape) -> list[UnlikeStages]:
        """The clusters that hold a stage of a shape."""
        able = (cluster for cluster in self.context.request.clusters() if holds(self.context.request, cluster, shape))
        return [UnlikeStages(self, cluster, shape) for cluster in able]

    def cache(self, *key: object) -> dict[object, Any]:
        """The dictionary of a key, which starts empty."""
        return self._cached.setdefault(key, {})


class UnlikeStages:
    """Costs and memory of the stages of one cluster under one shape, each the least over all positions on its nodes."""

    def __init__(self, costs: UnlikeCosts, cluster: Cluster, shape: Shape):
        request, self._context = costs.context.request, costs.context
        self.cluster, self.shape, self.layers, self._own = cluster, shape, costs.layers, shape.on(cluster.name)
        self.max_stages = most_stages(request, cluster, shape)
        self.config = self._own.config(request.workload, 2)
        self._room = request.topology.room(cluster.node.device)
        self._splits = schedules.get(shape.schedule).SPLITS_BACKWARD
        split = split_backward(self._own)
        self._costs = costs.cache(cluster.name, split, self._splits)
        self._linear: dict[object, list[LinearPasses]] = costs.cache(cluster.name, split, self._splits, "linear")
        self._bytes = costs.cache(cluster.name, split, shape.schedule, shape.vpp)
        stage = 3 if self.config.shards_parameters else 1
        passes = replace(split, zero_stage=stage, zero_shard_size=None, overlap_param_gather=True, tied_shards=False)
        narrow = passes if max(shape.cp, shape.ep) > 1 else replace(passes, dp=1)
        self._passes = costs.cache(cluster.name, narrow)
        self._held_bytes: dict[object, Bytes] = costs.cache("held bytes", split)
        self._activations: dict[object, memory.Activations] = costs.cache("activations", narrow)

    @functools.cached_property
    def _positions(self) -> tuple[StageCosts, ...]:
        return self._context.cluster_costs.stages(self.cluster, self.shape)

    @functools.cached_property
    def _alone(self) -> tuple[StageCosts, ...]:
        spread = self._context.cluster_costs.spread(self.cluster, self.shape)
        every = self._context.cluster_costs.stages(self.cluster, self.shape, True)
        return every if spread is None else (*every, spread)

    def cost(self, counts: Counts, ends: Ends) -> StageCost:
        """Costs of a stage without its messages; of the only stage of a pipeline where it has both ends."""
        if (counts, ends) not in self._costs:
            every = self._alone if all(ends) else self._positions
            if ends not in self._linear:
                self._linear[ends] = [LinearPasses(one, self.layers, ends) for one in every]
            cost = least_of([one.cost(counts) for one in self._linear[ends]])
            self._costs[counts, ends] = cost.sending(0.0, 0.0, 0.0, cost.weight if self._splits else 0.0)
        found: StageCost = self._costs[counts, ends]
        return found

    def at(self, number: int, counts: Counts, head: bool) -> StageCosts:
        """Costs of the stage with this number among those of the cluster in a pipeline, by its position on its nodes."""
        return replace(self._positions[number % len(self._positions)], workload=self.layers.of(counts, head))

    def fits(self, counts: Counts, ends: Ends, in_flight: tuple[tuple[int, int], ...]) -> bool:
        """Whether a stage without virtual ones fits beside its microbatches in flight (`schedules.in_flight`)."""
        return self.excess(counts, ends, in_flight, 1) <= 1e-12

    def excess(self, counts: Counts, ends: Ends, in_flight: tuple[tuple[int, int], ...], pp: int) -> float:
        """By which fraction of a device's room a rank of pp exceeds it; negative where it fits."""
        held, ahead = self.bytes(counts, ends), self.ahead_of_head(pp)
        return max(held.beside(*pair, ahead) for pair in in_flight) / self._room - 1

    def ahead_of_head(self, pp: int) -> float:
        """Microbatches in flight on the last rank of pp, on virtual stages before that of the head
        (`sim.kernels.memory.heads_in_flight`)."""
        return math.inf if self.config.offloads_parameters else (self.config.vpp - 1) * pp

    def bytes(self, counts: Counts, ends: Ends) -> RankBytes:
        """Bytes of a rank with these layers."""
        if (counts, ends) not in self._bytes:
            self._bytes[counts, ends] = self._rank_bytes(counts, ends, all(ends))
        found: RankBytes = self._bytes[counts, ends]
        return found

    def _rank_bytes(self, counts: Counts, ends: Ends, alone: bool) -> RankBytes:
        config = single_stage_config(self.config) if alone else self.config
        workload, layers, key = self.layers.of(counts, ends[1]), sum(counts), (counts, ends, alone)
        if key not in self._held_bytes:
            self._held_bytes[key] = memory.held_bytes(workload, config, layers, *ends)
        if key not in self._activations:
            self._activations[key] = memory.activation_bytes(workload, config, layers, *ends)
        found = self._activations[key]
        fixed = self._held_bytes[key] + found.working + communicators.outside_torch(config)
        return RankBytes(fixed, found.each(config), found.deferred, found.head)

    @property
    def room(self) -> Bytes:
        """Bytes of a device that a plan may use."""
        return self._room

    def kind_bytes(self) -> tuple[Bytes, tuple[KindBytes, ...]]:
        """(bytes that every stage needs beside its layers, bytes of a layer of each kind)."""
        if "kinds" not in self._bytes:
            bases, each = [], []
            for kind in range(len(self.layers.kinds)):
                one, two = (self._rank_bytes(self.layers.only(kind, number), (False, False), True) for number in (1, 2))
                more = (two.each - one.each) * self.config.vpp
                bases.append(2 * one.fixed - two.fixed)
                each.append(KindBytes(two.fixed - one.fixed + more, more, (two.waiting - one.waiting) * self._splits))
            self._bytes["kinds"] = min(bases), tuple(each)
        found: tuple[Bytes, tuple[KindBytes, ...]] = self._bytes["kinds"]
        return found

    def kind_seconds(self, alone: bool = False) -> tuple[KindSeconds, ...]:
        """Least seconds of a layer of each kind; alone: as in a pipeline of one stage, where that is faster.

        The exchange of cp ranks that attention does not hide is left out: it is not linear in the layers."""
        key = alone and self.cluster.node.device.launch_per_rank > 0
        if key not in self._passes:
            every = self._positions + self._alone if key else self._positions
            self._passes[key] = [layer_seconds(every, self.layers, kind) for kind in range(len(self.layers.kinds))]
        return tuple(KindSeconds.of(seconds, self._splits) for seconds in self._passes[key])

    def end_seconds(self) -> tuple[Seconds, Seconds]:
        """Least seconds (forward and backward) of one microbatch in the embedding, and in the head without its layers: of their
        kernels alone."""
        if "ends" not in self._passes:
            device, workload, config = self.cluster.node.device, self._context.request.workload, self.config
            ends = (compute.embedding_seconds, compute.head_seconds)
            self._passes["ends"] = tuple(sum(end(device, workload, config)) for end in ends)
        found: tuple[Seconds, Seconds] = self._passes["ends"]
        return found
