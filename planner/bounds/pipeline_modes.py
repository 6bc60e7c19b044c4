"""Modes of the stages of unlike pipelines: tp, cp and microbatch size, and the least seconds that layers take with them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace

from planner.costs.context import PlanningContext
from planner.request import Request
from planner.space.device_slots import Run, distinct_offsets, rows
from planner.space.sequences_and_experts import is_measured
from planner.space.shape import Shape, split_backward
from planner.space.shapes import slots, tensor_degrees
from sim.analytic.alike_configs import one_replica
from sim.analytic.stage_amounts import weight_seconds
from sim.analytic.stage_costs import StageCosts
from sim.hardware.cluster import Cluster
from sim.hardware.stack import software_facts
from sim.network.collective_costs import CollectiveCosts
from sim.plan.expert_parallelism import matches_tp, mesh_rows
from sim.plan.parallel_config import ParallelConfig
from sim.units import Seconds

PARTS = ((1, False, False), (0, True, False), (0, False, True))
"""A layer, the embedding and the head as stages: (layers, first, last)."""


@dataclass(frozen=True, slots=True)
class Mode:
    """Least seconds of a microbatch of `size` samples on a slot of `tp` x `cp` devices: of a layer, of the embedding, of the
    head; and of a layer's forward, and the part of its backward that gives the gradients of its inputs."""

    tp: int
    cp: int
    size: int
    seconds: tuple[Seconds, Seconds, Seconds]
    forward: Seconds
    inputs: Seconds

    @property
    def devices(self) -> int:
        """Number of devices of a slot."""
        return self.tp * self.cp

    @property
    def of_sample(self) -> tuple[float, ...]:
        """Device-seconds of a sample on each of them."""
        return tuple(one * self.devices / self.size for one in self.seconds)


Modes = Mapping[str, tuple[Mode, ...]]
"""Cluster -> its modes."""


def modes(context: PlanningContext, whole_sequences: bool = False) -> Modes:
    """The modes of each cluster of a request, for all tensor- and context-parallel degrees and microbatch sizes of the space.

    whole_sequences: only those with cp 1, as on measured devices, whose profiles do not tell of others."""
    request, batch = context.request, context.request.workload.global_batch_size
    whole = whole_sequences or is_measured(request)
    powers = {1 << power for power in range(batch.bit_length())}
    sizes = sorted(powers | {size for size in range(1, batch + 1) if batch % size == 0})
    return {
        cluster.name: tuple(
            _mode(context, cluster, (tp, cp), size)
            for tp in tensor_degrees(request)
            for cp in context_degrees(request, cluster.node.count // tp)
            if cp == 1 or not whole
            for size in sizes
        )
        for cluster in request.clusters()
    }


def suiting(every: Modes) -> Modes:
    """The modes of each cluster in which a layer, the embedding or the head takes least device-seconds of a sample: all that
    `work_seconds` needs."""
    return {
        name: tuple(dict.fromkeys(min(own, key=lambda one: one.of_sample[part]) for part in range(len(PARTS)) if own))
        for name, own in every.items()
    }


def context_degrees(request: Request, most: int) -> list[int]:
    """The context-parallel degrees of the space up to `most` ranks: powers of two that divide the sequence into pairs of
    chunks."""
    powers, seq_len = (1 << power for power in range(most.bit_length())), request.workload.seq_len
    return [cp for cp in powers if cp == 1 or seq_len % (2 * cp) == 0]


def _mode(context: PlanningContext, cluster: Cluster, degrees: tuple[int, int], size: int) -> Mode:
    """A mode: compute, and collectives of tp and cp ranks, as in a pipeline of one stage, which are never slower."""
    (tp, cp), config = degrees, configuration(context.request, *degrees, size)
    run, workload = Run(cluster, 0, slots(cluster, tp)), replace(context.request.workload, global_batch_size=size)
    divided = [configuration(context.request, *degrees, size, *one) for one in expert_degrees(context.request, tp)]
    weights = {one: weight_seconds(cluster.node.device, workload, one_replica(one), 1, False) for one in (config, *divided)}
    found, passes = list[list[Seconds]](), list[tuple[Seconds, Seconds]]()  # of each offset; of each offset and config
    for one in distinct_offsets(run, tp, cp):
        paid = CollectiveCosts(context.fleets.fleet, config, rows((one,), tp), context.fleets.capacities)
        every = {other: StageCosts(workload, other, paid).work(*PARTS[0]) for other in (config, *divided)}
        passes += [(forward, backward - weights[other]) for other, (forward, backward) in every.items()]
        ends = (sum(StageCosts(workload, config, paid).work(*part)) for part in PARTS[1:])
        found.append([min(map(sum, every.values())), *ends])
    layer, embedding, head = map(min, zip(*found, strict=True))
    forward, inputs = map(min, zip(*passes, strict=True))
    return Mode(tp, cp, size, (layer, embedding, head), forward, max(inputs, 0.0))


def expert_degrees(request: Request, tp: int) -> list[tuple[int, int | None]]:
    """ep and etp of the space that divide experts, beside tp ranks with a slice of each."""
    experts = request.workload.model.experts
    every = itertools.product((ep for ep in range(1, experts + 1) if experts % ep == 0), (None, 1) if tp > 1 else (None,))
    return [(ep, etp) for ep, etp in every if (ep, etp) != (1, None) and matches_tp(tp, ep, etp)]


def configuration(
    request: Request, tp: int, cp: int, size: int, ep: int = 1, etp: int | None = None
) -> ParallelConfig:  # fmt: skip
    """One replica of one stage with one microbatch, or as many replicas as divide experts."""
    facts, dp = software_facts(request.topology.stack, request.topology.fleet, tp), mesh_rows(tp, ep, etp)
    shape = Shape(tp, dp, size, "none", "1f1b", 1, 1, cp, ep, etp, None, **facts)
    return split_backward(shape).config(replace(request.workload, global_batch_size=size * dp), 1)
