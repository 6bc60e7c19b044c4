"""Bytes on a rank: parameters, gradients, optimizer state, activations in flight, workspace.

Mixed-precision Adam keeps 2-byte weights, gradients (4 bytes as in Megatron-LM, 2 where `gradient_precision` says so) and 12
bytes of fp32 weight and moments, 18 bytes a parameter in all; ZeRO 1 shares the 12 among the ranks that hold the same weights:
dp x cp of them, of experts 1/ep of that (Rajbhandari et al., arXiv 1910.02054, section 5). Activations are what
`sim.model.layer_kernels` saves, for as many microbatches as the schedule holds at that place (`schedules.peak_in_flight`); full
recomputation keeps each layer's input and one layer at work."""

from __future__ import annotations

import functools

from sim import schedules
from sim.model import Attention, Workload, embedding_kernels, head_kernels, layer_kernels
from sim.plan import GRADIENT_BYTES, ParallelConfig, Plan
from sim.units import GIBI, Bytes

WORKSPACE: Bytes = 1.0 * GIBI
"""CUDA context, communication buffers and GEMM workspace. NCCL's buffers take 0.38 GiB on eight GPUs (NVIDIA aiconfigurator
095f58a, systems/*.yaml misc.nccl_mem); the rest is a guess."""

OPTIMIZER_BYTES = 12
SCORE_BYTES = 5.0
"""Bytes kept per attention score by an unfused core: softmax 2, mask 1, dropped scores 2 (arXiv 2205.05198, section 4.1)."""


@functools.lru_cache(maxsize=65536)
def state_bytes(parameters: float, workload: Workload, config: ParallelConfig, sharing: int | None = None) -> Bytes:
    """Weights, gradients and optimizer state of `parameters` that `sharing` ranks hold alike, dp x cp unless told otherwise."""
    optimizer = OPTIMIZER_BYTES - (4 if workload.bytes_per_value == 4 else 0)  # fp32 weights are their own master copy
    shared = (sharing or config.dp_cp) if config.zero_stage >= 1 else 1
    gradient = max(GRADIENT_BYTES[config.gradient_precision], workload.bytes_per_value)
    return parameters * (workload.bytes_per_value + gradient + optimizer / shared)


@functools.lru_cache(maxsize=65536)
def layer_activation_bytes(workload: Workload, config: ParallelConfig) -> tuple[Bytes, Bytes]:
    """(kept, at work): bytes that one layer keeps for one microbatch, and bytes of the one layer that is recomputed."""
    b, s, t, nbytes = config.microbatch_size, workload.seq_len, config.tp, workload.bytes_per_value
    kernels = layer_kernels(workload.model, b, s, t, config.sequence_parallel, nbytes, config.cp, config.ep)
    everything = sum(kernel.saved for kernel in kernels)
    if config.attention == "unfused" and config.recompute != "selective":
        core = next(kernel for kernel in kernels if isinstance(kernel, Attention))
        everything += SCORE_BYTES * core.scores
    if config.recompute != "full":
        return everything, 0.0
    entered = float(b * s // config.cp * workload.model.hidden * nbytes)
    return (entered / t if config.sequence_parallel else entered), everything


def stage_parameters(workload: Workload, config: ParallelConfig, layers: int, first: bool, last: bool) -> float:
    """Parameters of one stage on one rank; a tied embedding is stored on both end stages of a pipeline."""
    model = workload.model
    total = layers * (model.layer_parameters - model.expert_parameters * (1 - 1 / config.ep))
    if first:
        total += model.embedding_parameters
    if last:
        shared_here = first and model.tied_embeddings
        total += model.head_parameters - (model.vocab * model.hidden if shared_here else 0)
    return total / config.tp


def by_sharing(
    workload: Workload, config: ParallelConfig, layers: int, first: bool, last: bool
) -> tuple[tuple[str, float, int], ...]:
    """(kind of gradient group, parameters on one rank, ranks that hold the same) of one stage: experts apart under ep."""
    everything = stage_parameters(workload, config, layers, first, last)
    if config.ep == 1:
        return (("dp", everything, config.dp_cp),)
    experts = layers * workload.model.expert_parameters / config.ep / config.tp
    return (("dp", everything - experts, config.dp_cp), ("edp", experts, config.edp))


def place_bytes(workload: Workload, config: ParallelConfig, layers: int, in_flight: float, first: bool, last: bool) -> Bytes:
    """Bytes of a rank that holds `layers` layers and keeps `in_flight` microbatches (in stages of layers / vpp)."""
    b, s, nbytes = config.microbatch_size, workload.seq_len // config.cp, workload.bytes_per_value
    kept, working = layer_activation_bytes(workload, config)
    held = by_sharing(workload, config, layers, first, last)
    total = sum(state_bytes(parameters, workload, config, sharing) for _, parameters, sharing in held)
    total += kept * layers / config.vpp * in_flight + working
    if first:
        total += sum(k.saved for k in embedding_kernels(workload.model, b, s, nbytes)) * in_flight
    if last:
        total += sum(k.saved for k in head_kernels(workload.model, b, s, config.tp, nbytes))
    messages = 4.0 * b * s * workload.model.hidden * nbytes / (config.tp if config.sequence_parallel else 1)
    return total + WORKSPACE + (messages if config.pp > 1 else 0.0)


def peak_memory(plan: Plan) -> tuple[Bytes, ...]:
    """Peak bytes of a rank at every pipeline place, the fullest replica counted."""
    config = plan.config
    peaks = []
    for place in range(config.pp):
        stages = plan.stages_of(place)
        layers = sum(plan.stages[stage].layers for stage in stages)
        held = max(
            schedules.peak_in_flight(config.schedule, place, config.pp, replica, config.vpp)
            for replica in set(config.num_microbatches)
        )
        last = config.num_stages - 1 in stages
        peaks.append(place_bytes(plan.workload, config, layers, held, 0 in stages, last))
    return tuple(peaks)


def limits(plan: Plan) -> tuple[Bytes, ...]:
    """Memory of the smallest device at every pipeline place."""
    config = plan.config
    smallest = [float("inf")] * config.pp
    for rank, device in enumerate(plan.placement):
        place = config.place(rank)[2]
        smallest[place] = min(smallest[place], plan.fleet.spec(device).memory)
    return tuple(smallest)
