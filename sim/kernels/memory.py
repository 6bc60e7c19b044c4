"""Memory of a rank in bytes: parameters, gradients, optimizer state, activations in flight, and the overhead of torch and CUDA.

Mixed-precision Adam keeps 2-byte weights, gradients (4 bytes as in Megatron-LM, 2 where `gradient_precision` says so) and 12
bytes of fp32 weight and moments: 18 bytes a parameter in all. ZeRO 1 shards the 12 over the ranks that hold the same weights:
dp x cp of them or `zero_shard_size`, for experts 1/ep of that (Rajbhandari et al., arXiv 1910.02054, section 5). ZeRO 2 also
shards the gradients, and ZeRO 3 the weights, except for the layers that are gathered at the time. Hosts may keep the 12
(`sim.kernels.offload`), and activations (`sim.kernels.activation_copies`).

Activations are what the kernels of `sim.workload.model.layer_kernels` save, for as many microbatches as the schedule keeps in
flight at the stage (`schedules.in_flight`); full recomputation keeps each layer's input and one layer in full. Where schedules
split off weight gradients, the operands of their products stay from B to W: the inputs of the products and the gradients of
their outputs, 32 s b h bytes a layer of a GPT (Qi et al., arXiv 2401.10241, table 1); all else that the forward kept is free
after B."""

from __future__ import annotations

import functools
from itertools import pairwise
from typing import NamedTuple

from sim.hardware.memory_facts import Degrees
from sim.kernels import communicators, frozen_weights, kept_tensors, layer_groups
from sim.kernels.compute import first_kernels, last_kernels, rank_kernels
from sim.kernels.recomputation import freed_bytes
from sim.plan.offloading import LAYERS_ON_DEVICE
from sim.plan.parallel_config import GRADIENT_BYTES, ParallelConfig
from sim.plan.plan import Plan
from sim.units import Bytes
from sim.workload.kernels import Attention, Gemm, Kernel
from sim.workload.optimizers import OPTIMIZERS
from sim.workload.workload import Workload

GATHERED_AHEAD = 2
"""Number of layers whose weights are gathered while another one computes: PyTorch's FullyShardedDataParallel lets two
all_gathers be in flight (limit_all_gathers; Zhao et al., arXiv 2304.11277, section 3.4)."""
SCORE_BYTES = {2: 5.0, 4: 4.0}
"""Bytes of a value -> bytes that an unfused attention core keeps per score. At 2: softmax 2, mask 1, dropped scores 2 (arXiv
2205.05198, section 4.1). At 4: the softmax alone, as in the one fp32 stack that was profiled (eth-easl/sailor cf2c8e3,
sailor/Planner/llm_info.json), which has no dropout; with it they would be 9. Whether a run uses dropout is not modelled."""


@functools.lru_cache(maxsize=65536)
def state_bytes(parameters: float, workload: Workload, config: ParallelConfig, sharing: int | None = None) -> Bytes:
    """Weights, gradients and optimizer state of `parameters`, sharded over `sharing` ranks (default: `config.shards`)."""
    of_optimizer = OPTIMIZERS[workload.optimizer].state_bytes(workload.bytes_per_value)
    optimizer = 0.0 if config.offloads_optimizer else of_optimizer
    shared = sharing or config.shards
    gradient = max(GRADIENT_BYTES[config.gradient_precision], workload.bytes_per_value)
    shares = [shared if config.zero_stage >= stage else 1 for stage in (3, 2, 1)]
    return parameters * sum(
        part / share for part, share in zip((workload.bytes_per_value, gradient, optimizer), shares, strict=True)
    )


def gathered_bytes(workload: Workload, config: ParallelConfig) -> Bytes:
    """Unsharded weights and gradients under ZeRO 2 and 3: weights of the current layer and of those gathered ahead (ZeRO 3),
    gradients of one layer."""
    if not config.reduces_each_microbatch:
        return 0.0
    kinds = workload.alike(1)
    layer = max(
        sum(parameters for _, parameters, sharing in by_sharing(alike, config, 1, False, False) if sharing > 1)
        for _, alike in kinds
    )
    weights = (1 + GATHERED_AHEAD) * workload.bytes_per_value if config.shards_parameters else 0
    frozen = max(frozen_weights.layer_bytes(alike, config) for _, alike in kinds) if config.shards_parameters else 0.0
    return layer * (weights + GRADIENT_BYTES[config.gradient_precision]) + (1 + GATHERED_AHEAD) * frozen


@functools.lru_cache(maxsize=65536)
def layer_activation_bytes(workload: Workload, config: ParallelConfig) -> tuple[Bytes, Bytes]:
    """(kept, recomputed): bytes that one layer keeps for one microbatch, and bytes that it recomputes during its backward."""
    b, s, t, nbytes = config.microbatch_size, workload.seq_len, config.tp, workload.bytes_per_value
    kernels = rank_kernels(workload, config)
    everything = sum(kernel.saved for kernel in kernels) + kept_tensors.layer_bytes(workload, config)
    freed = freed_bytes(kernels, config)
    scores = 0.0
    if config.attention == "unfused":
        core = next(kernel for kernel in kernels if isinstance(kernel, Attention))
        scores = SCORE_BYTES[nbytes] * core.scores
    if config.recompute != "full":
        freed += scores if "core_attn" in config.modules else 0.0
        return everything + scores - freed, freed
    everything += scores
    entered = float(b * s // config.cp * workload.model.hidden * nbytes)
    return (entered / t if config.sequence_parallel else entered), everything


def deferred_bytes(kernels: tuple[Kernel, ...], nbytes: int) -> Bytes:
    """Bytes that products keep between B and W: their inputs, as the forward saves them, and the gradients of their outputs; of
    a frozen product the input alone, which adapters need."""
    gemms = (k for k in kernels if isinstance(k, Gemm))
    return sum(k.saved + (0.0 if k.frozen else float(k.count * k.m * k.n * nbytes)) for k in gemms)


def stage_parameters(workload: Workload, config: ParallelConfig, layers: int, first: bool, last: bool) -> float:
    """Parameters of one stage on one rank that have gradients: all, or those of adapters; a tied embedding is stored on both
    end stages of a pipeline."""
    alike = workload.of_stage(layers, first, last).alike(layers)
    inner = sum(number * frozen_weights.trained_layer_parameters(one, config) for number, one in alike)
    return inner + (_end_parameters(workload, first, last) / config.tp if workload.adapter is None else 0.0)


def _end_parameters(workload: Workload, first: bool, last: bool) -> int:
    """Parameters of embedding and head of a stage."""
    model, ends = workload.model, 0
    if first:
        ends += model.embedding_parameters
    if last:
        shared_here = first and model.tied_embeddings
        ends += model.head_parameters - (model.vocab * model.hidden if shared_here else 0)
    return ends


def frozen_bytes(workload: Workload, config: ParallelConfig, layers: int, first: bool, last: bool) -> Bytes:
    """Bytes of the frozen weights of one stage on one rank, before ZeRO 3 shards them; 0 where all weights are trained."""
    staged = workload.of_stage(layers, first, last)
    return frozen_weights.stage_bytes(staged, config, layers, _end_parameters(workload, first, last))


def by_sharing(
    workload: Workload, config: ParallelConfig, layers: int, first: bool, last: bool
) -> tuple[tuple[str, float, int], ...]:
    """(kind of gradient group, parameters on one rank, ranks that shard their state) of one stage; two under ep or etp, also of
    other pipelines."""
    everything = stage_parameters(workload, config, layers, first, last)
    if not config.sums_experts_apart:
        return (("dp", everything, config.shards),)
    alike = workload.of_stage(layers, first, last).alike(layers)
    experts = sum(number * one.model.expert_parameters for number, one in alike) / config.expert_mesh
    return (("dp", everything - experts, config.shards), ("edp", experts, config.expert_gradient_ranks))


def fp8_parameters(workload: Workload, config: ParallelConfig, layers: int) -> dict[str, float]:
    """Kind of gradient group -> parameters of `layers` layers on one rank that are gathered in fp8, 1 byte each.

    These are the matrices of linear layers, where `fp8_param_gather` is set and products have one scale for each tensor
    (precision fp8). Embedding, head, norms, biases and router stay in bf16 (NVIDIA/Megatron-LM d98e8a64, get_fp8_context of
    megatron/core/fp8_utils.py; pytorch/ao 36027d82, torchao/float8/fsdp_utils.py). mxfp8 is gathered in bf16: Megatron-LM
    gathers it into a buffer of bf16 (megatron/core/distributed/param_and_grad_buffer.py), and torchao refuses it (config.py).
    """
    if not config.fp8_param_gather or workload.precision != "fp8":
        return {}
    return layer_groups.linear_parameters(workload, config, layers)


def heads_in_flight(config: ParallelConfig, in_flight: float) -> float:
    """Microbatches whose logits the head keeps, at least one, where `in_flight` are on the last pipeline rank.

    Every virtual stage of that rank before the last one holds `pp` microbatches: interleaved 1F1B passes them on in rounds of
    `pp` (arXiv 2104.04473, section 2.2). All others are the head's: all microbatches under GPipe, and all under interleaved
    1F1B if there are only `pp` of them, for then Megatron-LM runs every forward first. If only weight gradients wait, one is
    counted as well: the last B makes the gradient of its logits before it frees them. A head that is streamed from the host
    runs the forward and the backward of one microbatch after the other."""
    return 1.0 if config.offloads_parameters else max(1.0, in_flight - (config.vpp - 1) * config.pp)


@functools.lru_cache(maxsize=4096)
def logits_bytes(workload: Workload, config: ParallelConfig) -> Bytes:
    """Bytes that the head keeps for one microbatch on one rank: its inputs and the logits."""
    return sum(kernel.saved for kernel in last_kernels(workload, config))


@functools.lru_cache(maxsize=4096)
def _deferred_layer_bytes(workload: Workload, config: ParallelConfig) -> Bytes:
    """Bytes that one layer keeps for one microbatch that waits for W."""
    return deferred_bytes(rank_kernels(workload, config), workload.bytes_per_value)


def rank_bytes(
    workload: Workload, config: ParallelConfig, layers: int, in_flight: float, first: bool, last: bool, deferred: int = 0
) -> Bytes:
    """Bytes that torch needs on a rank with `layers` layers, `first` with the embedding, `last` with the head. `in_flight`:
    activations of microbatches that wait for B, each of one virtual stage (layers / vpp); `deferred`: those that wait for W."""
    held = held_bytes(workload, config, layers, first, last)
    return activation_bytes(workload, config, layers, first, last).beside(held, config, in_flight, deferred)


def held_bytes(workload: Workload, config: ParallelConfig, layers: int, first: bool, last: bool) -> Bytes:
    """The part of `rank_bytes` of weights, gradients and optimizer state, and of what is gathered of them."""
    if config.offloads_parameters:
        return layer_groups.on_device_bytes(workload, config, layers, first, last)
    held = by_sharing(workload, config, layers, first, last)
    total = sum(state_bytes(parameters, workload, config, sharing) for _, parameters, sharing in held)
    total += frozen_bytes(workload, config, layers, first, last) / (config.shards if config.zero_stage == 3 else 1)
    total += kept_tensors.parameter_bytes(sum(parameters for _, parameters, _ in held), workload, config)
    if layers:
        staged = workload.of_stage(layers, first, last)
        total += frozen_weights.written_out_bytes(staged, config) + gathered_bytes(staged, config)
    return total


class Activations(NamedTuple):
    """The part of `rank_bytes` that depends neither on the replicas nor on the ZeRO stage.

    kept: of one microbatch, in all layers of the rank; embedded: of one in the embedding; working: buffers, and what the
    microbatch at work needs beyond that; head: of one in the head; deferred: of one that waits for W; away: on the host."""

    kept: Bytes
    embedded: Bytes
    working: Bytes
    head: Bytes
    deferred: Bytes
    away: Bytes = 0.0

    def each(self, config: Degrees) -> Bytes:
        """Bytes of each microbatch in flight on one virtual stage, with its share of the fragmentation."""
        return self.kept / config.vpp * (1 + config.memory.fragmentation) + self.embedded

    def beside(self, held: Bytes, config: ParallelConfig, in_flight: float, deferred: int) -> Bytes:
        """`rank_bytes` of so many microbatches, beside the `held_bytes`."""
        heads = heads_in_flight(config, in_flight) * self.head
        return held + self.working + (in_flight * self.each(config) + deferred * self.deferred + heads)


def activation_bytes(workload: Workload, config: ParallelConfig, layers: int, first: bool, last: bool) -> Activations:
    """The activations of a rank with `layers` layers. dp, ZeRO and vpp of the configuration do not matter."""
    nbytes, workload = workload.bytes_per_value, workload.of_stage(layers, first, last)
    kinds = workload.alike(layers)
    alike = [(n, *layer_activation_bytes(kind, one)) for number, kind in kinds for n, one in config.by_recomputation(number)]
    kept = sum(n * bytes_ for n, bytes_, _ in alike)
    working, away = max((again for n, _, again in alike if n), default=0.0), 0.0
    if config.offloads_activations:
        largest = max((bytes_ for n, bytes_, _ in alike if n), default=0.0)
        working, kept, away = working + LAYERS_ON_DEVICE * largest, 0.0, kept
    working -= config.memory.fragmentation * kept  # blocks of the microbatch at work are freed and taken in the same order
    working += kept_tensors.sequence_bytes(workload, config, layers, last) + config.memory.workspace
    embedded = sum(kernel.saved for kernel in first_kernels(workload, config)) if first else 0.0
    head, deferred = 0.0, sum(number * _deferred_layer_bytes(one, config) for number, one in kinds)
    if last:
        head = logits_bytes(workload, config)
        working += kept_tensors.loss_bytes(workload, config)
        deferred += deferred_bytes(last_kernels(workload, config), nbytes)
    working += kept_tensors.message_bytes(workload, config) if layers or first or last else 0.0
    return Activations(kept, embedded, working, head, deferred, away)


def peak_memory(plan: Plan) -> tuple[Bytes, ...]:
    """Peak bytes of a device of every pipeline rank, torch's and those outside it; the replica that needs most counts."""
    own = (plan.config_of((pp_rank,)) for pp_rank in range(plan.config.pp))
    return tuple(inside + communicators.outside_torch(config) for inside, config in zip(torch_bytes(plan), own, strict=True))


def reserved_bytes(plan: Plan) -> tuple[Bytes, ...]:
    """Bytes that torch reports as reserved on a device of every pipeline rank: what it needs, and freed memory that it cannot
    reuse yet (`kept_tensors.delayed_bytes`), as the device has room for it."""
    reserved = []
    for pp_rank, (needed, limit) in enumerate(zip(torch_bytes(plan), limits(plan), strict=True)):
        stages = plan.stages_of(pp_rank)
        layers, config = sum(plan.stages[stage].layers for stage in stages), plan.config_of(stages)
        more = kept_tensors.delayed_bytes(plan.workload, config, layers, 0 in stages)
        reserved.append(kept_tensors.with_delayed(needed, more, limit - communicators.outside_torch(config)))
    return tuple(reserved)


def torch_bytes(plan: Plan) -> tuple[Bytes, ...]:
    """Peak bytes that torch needs on a device of every pipeline rank; the replica that needs most counts."""
    return tuple(needed(plan, pp_rank, plan.config_of(plan.stages_of(pp_rank))) for pp_rank in range(plan.config.pp))


def needed(plan: Plan, pp_rank: int, config: ParallelConfig) -> Bytes:
    """Peak bytes that torch needs on a device of a pipeline rank, with the configuration of its stages."""
    stages = plan.stages_of(pp_rank)
    layers, ends = sum(plan.stages[stage].layers for stage in stages), plan.ends(stages)
    pairs = in_flight(plan, pp_rank)
    workload = plan.workload_of(stages)
    passed = kept_tensors.message_bytes(workload, config) if any(map(plan.passes_on, stages)) else 0.0
    return passed + max(rank_bytes(workload, config, layers, held, *ends, deferred) for held, deferred in pairs)


def in_flight(plan: Plan, pp_rank: int) -> frozenset[tuple[int, int]]:
    """What replicas keep at once on a pipeline rank, as (microbatches between F and B, those between B and W)."""
    config = plan.config
    every = (config.in_flight_of(pp_rank, replica * config.cuts_of(pp_rank)) for replica in set(config.num_microbatches))
    return frozenset(pair for pairs in every for pair in pairs)


def limits(plan: Plan) -> tuple[Bytes, ...]:
    """Memory in bytes of the smallest device of every pipeline rank."""
    firsts = [plan.config.first_rank(pp_rank) for pp_rank in range(plan.config.pp + 1)]
    clusters = ({device.cluster for device in plan.placement[first:last]} for first, last in pairwise(firsts))
    return tuple(min(plan.fleet.cluster(name).node.device.memory for name in names) for names in clusters)
