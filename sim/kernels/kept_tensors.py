"""Bytes of the tensors that a software stack keeps beyond Megatron-LM's (`sim.hardware.memory_facts`).

Notation: b microbatch size, s tokens of a sequence on one rank, h hidden size, f width of the MLP, v vocabulary, t
tensor-parallel degree, n bytes of a value."""

from __future__ import annotations

from sim.plan.parallel_config import ParallelConfig
from sim.units import Bytes
from sim.workload.workload import Workload


def layer_bytes(workload: Workload, config: ParallelConfig) -> Bytes:
    """Bytes that a layer keeps for one microbatch: n b s f / t for silu(gate), unless the MLP is recomputed, and n b s (k + v)
    / t for copied keys and values."""
    model, total = workload.model, 0.0
    tokens = config.microbatch_size * (workload.seq_len // config.cp)
    if "silu" in config.memory.keeps and model.mlp == "swiglu" and not config.repeats_mlp:
        width = max(model.experts_per_token, 1) * model.ffn_hidden + model.shared_ffn_hidden
        total += tokens * width / config.tp
    if "kv_copy" in config.memory.keeps:
        total += tokens * 2 * max(model.kv_size // config.tp, model.head_dim)
    return total * workload.bytes_per_value


def loss_bytes(workload: Workload, config: ParallelConfig) -> Bytes:
    """Bytes that the loss of one microbatch holds beside its softmax.

    The logits as computed (n b s v / t) stay until the loss is computed, if the softmax in fp32 is not made in their place.
    Megatron-LM makes the softmax in the place of the logits in fp32 (megatron/core/tensor_parallel/cross_entropy.py 00611e6e,
    calculate_predicted_logits); other software holds these as well (4 b s v / t)."""
    tokens = config.microbatch_size * (workload.seq_len // config.cp)
    width = workload.bytes_per_value if workload.bytes_per_value < 4 else 0
    width += 4 if "fp32_logits" in config.memory.keeps else 0
    return float(tokens * (workload.model.vocab // config.tp) * width)


def parameter_bytes(parameters: float, workload: Workload, config: ParallelConfig) -> Bytes:
    """Bytes beside `parameters` of a rank, their gradients and their optimizer state: n each in buckets or in a flat copy."""
    name = {0: "ddp_buckets", 1: "flat_gathers"}.get(config.zero_stage)
    kept = config.dp_cp > 1 and name in config.memory.keeps
    return parameters * workload.bytes_per_value if kept else 0.0


def waiting_bytes(activations: Bytes, in_flight: float, config: ParallelConfig) -> Bytes:
    """Bytes of fragmentation, where one virtual stage keeps `activations` for each of `in_flight` microbatches.

    Blocks of the microbatch at work (`vpp` virtual stages) are freed and taken in the same order, so it needs no more."""
    return config.memory.fragmentation * activations * (in_flight - config.vpp)


def delayed_bytes(workload: Workload, config: ParallelConfig, layers: int, first: bool) -> Bytes:
    """Bytes of freed tensors that the allocator cannot reuse yet: inputs of tensor-parallel collectives, n b s h each.

    torch marks the input of a collective as used on NCCL's stream, and reuses its memory only after the device has passed that
    point. The host launches the kernels of a whole forward ahead of the device, so all inputs of a forward pile up: of the sums
    after attention and after the MLP of each layer, and of the sum after the embedding. In a pipeline the host waits for each
    received message, so they do not. Before torch runs out of memory it waits for the device and reuses them, so they count as
    reserved memory but not as needed memory."""
    if "collective_inputs" not in config.memory.keeps or config.tp == 1 or config.pp > 1:
        return 0.0
    tokens = config.microbatch_size * (workload.seq_len // config.cp)
    return float(tokens * workload.model.hidden * workload.bytes_per_value) * (2 * layers + first)
