"""Costs, memory and messages of mixed stages, whose replicas are on several clusters (`planner.space.device_slots`).

Seconds are closed forms of `sim.analytic.stage_costs`, bytes those of `sim.kernels.memory`."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from planner.costs.cluster_costs import have_equal_positions
from planner.costs.context import PlanningContext
from planner.costs.mixed_messages import MixedMessages
from planner.costs.mixed_rings import MixedRings
from planner.space.device_slots import Run, StageSlots, borders, distinct_offsets, rows
from planner.space.shape import Shape, split_backward
from sim.analytic.plan_costs import messages_alpha_beta
from sim.analytic.stage_costs import StageCost, StageCosts
from sim.field_changes import changed
from sim.hardware.cluster import Device
from sim.hardware.device_spec import DeviceSpec
from sim.hardware.transport import common_transport
from sim.kernels import communicators, memory
from sim.kernels.payloads import message_bytes
from sim.network.alpha_beta import AlphaBeta
from sim.network.collective_costs import CollectiveCosts
from sim.plan import schedules
from sim.plan.parallel_config import ParallelConfig


def mixed_costs(context: PlanningContext) -> MixedStageCosts:
    """The costs of mixed stages of a context, which all its bounds and candidates share."""
    if context.mixed is None:
        context.mixed = MixedStageCosts(context)
    costs: MixedStageCosts = context.mixed
    return costs


class MixedStageCosts:
    """Costs, memory and messages of mixed stages under any shape.

    Stages with equal positions on the nodes of the same clusters cost the same, so each is computed once."""

    def __init__(self, context: PlanningContext):
        self.context, self.fleet, self.workload = context, context.request.topology.fleet, context.request.workload
        self.rings, self.peers = MixedRings(context), MixedMessages(context)
        self._collective_costs: dict[tuple[object, ...], CollectiveCosts] = {}
        self._costs: dict[tuple[object, ...], StageCost] = {}
        self._linear: dict[tuple[object, ...], tuple[float, float]] = {}
        self._own: dict[tuple[object, ...], tuple[tuple[float, float], tuple[float, float]]] = {}
        self._pairs: dict[tuple[str, str, bool], AlphaBeta] = {}
        self._configs: dict[tuple[Shape, int], ParallelConfig] = {}
        self._bytes: dict[tuple[object, ...], float] = {}

    def config(self, shape: Shape, pp: int) -> ParallelConfig:
        """The configuration of a shape with a pipeline of pp stages."""
        if (shape, pp) not in self._configs:
            self._configs[shape, pp] = shape.config(self.workload, pp)
        return self._configs[shape, pp]

    def cost(
        self, shape: Shape, stage: StageSlots, layers: int, ends: tuple[bool, bool], spec: DeviceSpec | None = None
    ) -> StageCost:
        """Costs of a stage. ends: whether it is the (first, last) of the pipeline.

        The costs are those of its slowest devices, or with `spec` of its devices of that type. Raises NoRoute where no link
        joins its devices."""
        key = shape, geometry(stage, shape.tp), layers, ends, spec and spec.name
        if key not in self._costs:
            costs = StageCosts(self.workload, self.config(shape, 1 if all(ends) else 2), self.collectives(shape, stage, spec))
            self._costs[key] = costs.of(layers, *ends, (spec,) if spec else ())
        return self._costs[key]

    def collectives(self, shape: Shape, stage: StageSlots, spec: DeviceSpec | None = None) -> CollectiveCosts:
        """Costs of the collectives of a stage; with `spec` those of its devices of that type. Raises NoRoute."""
        groups = shape.tp, shape.dp, shape.cp, shape.ep, shape.etp, shape.zero_stage, shape.zero_shard_size
        key = geometry(stage, shape.tp), groups, spec and spec.name
        if key not in self._collective_costs:
            if spec is None:
                self._collective_costs[key] = CollectiveCosts(
                    self.fleet, self.config(shape, 1), rows(stage, shape.tp), self.context.fleets.capacities
                )
            else:
                own = tuple(row for row, kind in enumerate(_types(stage)) if kind == spec.name)
                self._collective_costs[key] = self.collectives(shape, stage, None).among(own)
        return self._collective_costs[key]

    def reduce_together(self, shape: Shape, stages: Iterable[StageSlots]) -> bool:
        """Whether all ranks of each stage take equally long to reduce gradients."""
        return all(self.collectives(shape, stage, None).reduce_together for stage in stages)

    def linear_seconds(
        self, shape: Shape, stage: StageSlots, ends: tuple[bool, bool], spec: DeviceSpec | None = None
    ) -> tuple[float, float]:
        """(s, c) of a stage: with k layers it takes s + k c seconds for one microbatch, forward and backward."""
        shape, stage = _one_block_of_each(shape, stage)
        kept: object = geometry(stage, shape.tp), shape.dp, shape.cp, shape.ep
        if max(shape.cp, shape.ep) == 1:  # positions and number of its replicas do not matter
            kept = tuple(dict.fromkeys(run.cluster.name for run in stage))
        degrees = shape.tp, shape.etp, shape.vpp, shape.microbatch_size, shape.recompute, shape.schedule, shape.zero_stage
        key = kept, degrees, shape.zero_shard_size, ends, spec and spec.name
        if key not in self._linear:
            one, two = (self._both(shape, stage, layers, ends, spec) for layers in (1, 2))
            self._linear[key] = 2 * one - two, two - one
        return self._linear[key]

    def _both(self, shape: Shape, stage: StageSlots, layers: int, ends: tuple[bool, bool], spec: DeviceSpec | None) -> float:
        """Seconds of one microbatch, forward and backward; gradient groups do not matter."""
        costs = StageCosts(self.workload, self.config(shape, 1 if all(ends) else 2), self.collectives(shape, stage, spec))
        return sum(costs.passes(layers, *ends, (spec,) if spec else ()))

    def own_seconds(self, shape: Shape, run: Run, ends: tuple[bool, bool], pp: int = 2) -> tuple[float, float]:
        """`linear_seconds` of one replica alone, on the first slots of a run; other replicas and their experts do not
        matter.

        pp: 1 for layers as in a pipeline of one stage, which are never slower (`launch_per_rank`); always 1 for both ends."""
        forward, backward = self.own_passes(shape, run, ends, pp)
        return forward[0] + backward[0], forward[1] + backward[1]

    def least_seconds(self, shape: Shape, run: Run, ends: tuple[bool, bool], pp: int = 2) -> tuple[float, float]:
        """(s, c) of `own_seconds`, each the least over all replicas of a run."""
        every = [self.own_seconds(shape, one, ends, pp) for one in distinct_offsets(run, shape.tp, shape.cp)]
        return min(start for start, _ in every), min(each for _, each in every)

    def least_passes(
        self, shape: Shape, run: Run, ends: tuple[bool, bool], pp: int = 2
    ) -> tuple[tuple[float, float], tuple[float, float]]:
        """`own_passes`, each number the least over all replicas of a run."""
        every = [self.own_passes(shape, one, ends, pp) for one in distinct_offsets(run, shape.tp, shape.cp)]
        forward, backward = ((min(one[way][0] for one in every), min(one[way][1] for one in every)) for way in (0, 1))
        return forward, backward

    def slowest_stage(self, shape: Shape, group: Sequence[Run], layers: Sequence[int]) -> float:
        """Seconds of a microbatch on the slowest stage of a replica, given its slots and layers of each stage."""
        last = len(group) - 1
        linear = [self.own_seconds(shape, run, (i == 0, i == last)) for i, run in enumerate(group)]
        return max(s + k * c for k, (s, c) in zip(layers, linear, strict=True))

    def own_passes(
        self, shape: Shape, run: Run, ends: tuple[bool, bool], pp: int = 2
    ) -> tuple[tuple[float, float], tuple[float, float]]:
        """((s, c) of the forward, (s, c) of the backward), which `own_seconds` adds up.

        Replicas inside one node have the same, whatever its slots they are on (`ClusterCosts.stages`)."""
        width, pp = _narrow(shape), 1 if all(ends) else pp
        per_node = run.cluster.node.count // shape.tp
        stage = (Run(run.cluster, 0 if run.first % per_node + shape.cp <= per_node else run.first, shape.cp),)
        key = width, geometry(stage, shape.tp), ends, pp
        if key not in self._own:
            costs = StageCosts(self.workload, self.config(width, pp), self.collectives(width, stage, None))
            ones, twos = (costs.alone(layers, *ends) for layers in (1, 2))
            forward, backward = ((2 * one - two, two - one) for one, two in zip(ones, twos, strict=True))
            self._own[key] = forward, backward
        return self._own[key]

    def bytes_at(
        self, shape: Shape, stage: StageSlots, layers: int, index: int, pp: int, microbatches: int
    ) -> tuple[float, float]:
        """(bytes of the fullest rank of a stage, room on its smallest device). Raises NotDefined (`schedules.in_flight`)."""
        config = self.config(shape, pp if shape.vpp > 1 else min(pp, 2))  # without chunks, all pp of 2 or more need the same
        pairs = schedules.in_flight(shape.schedule, index, pp, microbatches, shape.vpp)
        ends = index == 0, index == pp - 1
        key = config, layers, pairs, ends
        if key not in self._bytes:
            inside = max(memory.rank_bytes(self.workload, config, layers, held, *ends, waits) for held, waits in pairs)
            self._bytes[key] = inside + communicators.outside_torch(config)
        return self._bytes[key], min(self.context.request.topology.room(run.cluster.node.device) for run in stage)

    def most(self, shape: Shape, stage: StageSlots, index: int, pp: int, microbatches: int) -> int:
        """Most layers that fit in the memory of a stage; 0 where none fits. Bytes are linear in the layers."""
        (one, limit), (two, _) = (self.bytes_at(shape, stage, k, index, pp, microbatches) for k in (1, 2))
        return max(0, 1 + math.floor((limit - one) / (two - one) * (1 + 1e-12)))

    def per_byte(self, pairs: Iterable[tuple[Device, Device]]) -> float:
        """Seconds per byte over the slowest link between pairs of devices, each used alone. Raises NoRoute for no link."""
        return max((self._pair(a, b).per_byte for a, b in pairs), default=0.0)

    def messages(self, shape: Shape, stages: Sequence[StageSlots]) -> list[float]:
        """For each border between stages, seconds of one microbatch's activations and of their gradients over its slowest
        link."""
        nbytes = message_bytes(self.workload, self.config(shape, 2))
        return [
            2 * max(self._pair(*pair).seconds(nbytes) for pair in borders(a, b, shape.tp))
            for a, b in itertools.pairwise(stages)
        ]

    def _pair(self, a: Device, b: Device) -> AlphaBeta:
        """AlphaBeta of one message between two devices. Raises NoRoute where no link joins them."""
        key = a.cluster, b.cluster, (a.cluster, a.node) == (b.cluster, b.node)
        if key not in self._pairs:
            nic, _ = common_transport(self.fleet, (a, b))
            self._pairs[key] = messages_alpha_beta(self.fleet, ((a, b, nic),), self.context.fleets.capacities)
        return self._pairs[key]


@functools.lru_cache(maxsize=4096)
def _narrow(shape: Shape) -> Shape:
    """The shape with the fewest replicas that hold each expert; without cp, its schedule and ZeRO stage do not matter
    either."""
    one = changed(shape.one_mesh, tied_shards=False)
    return changed(split_backward(one), zero_stage=1, overlap_param_gather=True) if shape.cp == 1 else one


def _one_block_of_each(shape: Shape, stage: StageSlots) -> tuple[Shape, StageSlots]:
    """The shape and the slots of a stage with the same passes, for which fewer ranks are looked at: of each cluster only the
    first ranks over which cp and experts are divided. The same shape and stage where some of these are on two clusters, may
    have unequal positions on the nodes, or gather parameters."""
    rows = math.lcm(shape.cp, shape.expert_rows)
    if max(shape.cp, shape.ep) == 1 or shape.zero_stage == 3:
        return shape, stage
    for run in stage:
        whole = min(rows, run.cluster.node.count // shape.tp)
        if run.count % rows or run.first % whole or not have_equal_positions(run.cluster, shape):
            return shape, stage
    clusters = {run.cluster.name: run.cluster for run in stage}
    blocks = tuple(Run(cluster, 0, rows) for cluster in clusters.values())
    return changed(shape, dp=rows // shape.cp * len(blocks), zero_shard_size=None), blocks


def geometry(stage: StageSlots, tp: int) -> tuple[tuple[str, int, int], ...]:
    """Positions of a stage on the nodes of its clusters: (cluster, first slot on its node, slots) of every run. Stages with
    equal positions, and equal ends, cost the same."""
    return tuple((run.cluster.name, run.first % (run.cluster.node.count // tp), run.count) for run in stage)


def _types(stage: StageSlots) -> Iterator[str]:
    """The device type of every replica."""
    for run in stage:
        yield from itertools.repeat(run.cluster.node.device.name, run.count)
