"""Memory of the stages of one node class under one shape: the layers and the microbatches that fit."""

from __future__ import annotations

import functools
import math

from planner.costs.cluster_costs import single_replica
from planner.costs.context import PlanningContext
from planner.space.shape import Shape, split_backward
from sim.field_changes import changed
from sim.hardware.cluster import Cluster
from sim.kernels import communicators, memory
from sim.plan.parallel_config import ParallelConfig


def single_stage_config(config: ParallelConfig) -> ParallelConfig:
    """The configuration of a pipeline of one stage."""
    return changed(config, pp=1)


class StageMemory:
    """Layers and microbatches that fit on the devices of a cluster, by role (first, middle, last, or only)."""

    def __init__(self, context: PlanningContext, cluster: Cluster, shape: Shape):
        self._context, self._shape = context, shape
        self._workload = context.request.workload
        self._device_bytes = context.request.topology.room(cluster.node.device)
        self._most: dict[tuple[str, tuple[tuple[int, int], ...], int], int] = {}
        self._room: dict[str, float] = {}
        self._linear: dict[str, tuple[tuple[float, float], ...]] = {}

    def held(self, role: str, layers: int) -> float:
        """Microbatches whose activations fit beside a stage of `layers` layers; negative where not even the weights fit."""
        least = 0 if self._shape.vpp > 1 else 1  # a further microbatch keeps further logits, unless there are chunks
        low, high = (self.bytes_at(role, layers, held) for held in (least, least + 1))
        if high == low:  # hosts keep the activations
            return math.inf if low <= self._device_bytes else -1.0
        return least + math.floor((self._device_bytes - low) / (high - low) * (1 + 1e-12))

    def bytes_at(self, role: str, layers: int, held: int = 1) -> float:
        """Bytes of a rank of a stage that holds the activations of `held` microbatches."""
        config = self._config_of(role)
        inside = memory.rank_bytes(self._workload, config, layers, held * config.vpp, *_ends(role))
        return inside + communicators.outside_torch(config)

    def most_layers(self, role: str, in_flight: tuple[tuple[int, int], ...], pp: int = 0) -> int:
        """Most layers of a stage that fit beside its microbatches in flight (`schedules.in_flight`), at most the model's
        layers. `pp`: stages of the pipeline; if it is not known, the head has one microbatch under schedules with chunks."""
        if (role, in_flight, pp) not in self._most:
            most = self._workload.model.layers
            for pair in in_flight:
                one, two = self.of_one_and_two(role, *pair, pp)
                most = min(most, math.floor(((self.room(role) - one) / (two - one) + 1) * (1 + 1e-12)))
            self._most[role, in_flight, pp] = max(most, 0)
        return self._most[role, in_flight, pp]

    def most_kept(self, role: str, in_flight: tuple[tuple[int, int], ...], pp: int = 0) -> int:
        """`most_layers` without a choice of layers to recompute."""
        return self.most_layers(role, in_flight, pp)

    def fewest(self, role: str, in_flight: tuple[tuple[int, int], ...], pp: int = 0) -> tuple[int, ...]:
        """Empty: there is no choice of layers to recompute (`planner.costs.block_memory`)."""
        return ()

    def room(self, role: str) -> float:
        """Bytes of a device for torch, beside what a stage in a role takes outside it."""
        if role not in self._room:
            self._room[role] = self._device_bytes - communicators.outside_torch(self._config_of(role))
        return self._room[role]

    @functools.cached_property
    def _config(self) -> ParallelConfig:
        return self._shape.config(self._workload, 2)

    @functools.cached_property
    def _replicas(self) -> tuple[object, ...]:
        """The degrees by which shapes share what does not depend on their microbatches, schedules and recomputation."""
        shape = self._shape
        degrees = shape.tp, shape.dp, shape.cp, shape.ep, shape.etp, shape.zero_stage, shape.zero_shard_size
        return *degrees, shape.offload

    @functools.cached_property
    def _pieces(self) -> tuple[object, ...]:
        """The degrees by which shapes share activations: those that differ in dp, ZeRO stage, schedule and vpp only, where
        experts are not divided over ranks of several replicas."""
        shape, narrow = self._shape, self._replicas if self._divides_experts else (self._shape.tp, self._shape.cp)
        return *narrow, shape.offload, shape.microbatch_size, shape.recompute

    @property
    def _divides_experts(self) -> bool:
        return self._shape.ep > 1 or self._shape.etp is not None

    def of_one_and_two(self, role: str, held: int, deferred: int, pp: int) -> tuple[float, float]:
        """Bytes of a stage of one layer and of two layers; each further layer adds the difference."""
        (fixed, each), (fixed_two, each_two) = self._bytes(role)
        heads = self._more_heads(role, held, pp)
        one, two = fixed + held * each + heads, fixed_two + held * each_two + heads
        if deferred:
            later, later_two = self._activations(role)
            one, two = one + deferred * later.deferred, two + deferred * later_two.deferred
        return one, two

    def _bytes(self, role: str) -> tuple[tuple[float, float], ...]:
        """(bytes without activations, bytes for each microbatch in flight) of stages of one and of two layers.

        `sim.kernels.memory.rank_bytes` is linear in the layers and, for given layers, in the microbatches in flight and in
        those whose weight gradients are deferred, but for the head (`_more_heads`)."""
        if role not in self._linear:
            key = self._replicas, self._pieces, self._shape.vpp, role
            if key not in self._context.bytes:
                held = self._held_bytes(role)
                self._context.bytes[key] = tuple(
                    (own + one.working + one.head, one.each(self._shape))
                    for own, one in zip(held, self._activations(role), strict=True)
                )
            self._linear[role] = self._context.bytes[key]
        return self._linear[role]

    def _held_bytes(self, role: str) -> tuple[float, ...]:
        """`memory.held_bytes` of stages of one and of two layers; shared by shapes with the same replicas."""
        key = self._replicas, role
        if key not in self._context.held_bytes:
            config = self._config_of(role)
            self._context.held_bytes[key] = tuple(memory.held_bytes(self._workload, config, k, *_ends(role)) for k in (1, 2))
        return self._context.held_bytes[key]

    def _activations(self, role: str) -> tuple[memory.Activations, ...]:
        """Activations of stages of one and of two layers."""
        key = self._pieces, role
        if key not in self._context.activations:
            narrow = (split_backward if self._divides_experts else single_replica)(self._shape)
            config = narrow.config(self._workload, 1 if role == "only" else 2)
            self._context.activations[key] = tuple(
                memory.activation_bytes(self._workload, config, k, *_ends(role)) for k in (1, 2)
            )
        return self._context.activations[key]

    def _more_heads(self, role: str, held: int, pp: int) -> float:
        """Bytes of the head's microbatches beyond the one that `_bytes` has."""
        if role not in ("last", "only") or (self._shape.vpp > 1 and not pp):
            return 0.0
        config = changed(self._config, pp=pp) if self._shape.vpp > 1 else self._config  # without chunks, pp does not matter
        return (memory.heads_in_flight(config, held) - 1) * self._logits

    @functools.cached_property
    def _logits(self) -> float:
        """Bytes that the head keeps for one microbatch."""
        return memory.logits_bytes(self._workload, self._config)

    def _config_of(self, role: str) -> ParallelConfig:
        return single_stage_config(self._config) if role == "only" else self._config


def _ends(role: str) -> tuple[bool, bool]:
    """Whether a stage in a role has the embedding, and whether it has the head."""
    return role in ("first", "only"), role in ("last", "only")
