"""Bytes of the tensors that a software stack keeps beyond Megatron-LM's (`sim.hardware.memory_facts`).

Notation: b microbatch size, s tokens of a sequence on one rank, h hidden size, f width of the MLP, v vocabulary, t
tensor-parallel degree, n bytes of a value."""

from __future__ import annotations

from sim.plan.parallel_config import ParallelConfig
from sim.units import Bytes
from sim.workload.workload import Workload

LAUNCHES_AHEAD = 1000
"""Kernels that the host can launch before the device has run the first of them; the next launch waits. Not documented, but
measured: "the buffer size is about 1000 kernels" (forums.developer.nvidia.com/t/68937). Larger: more inputs pile up."""


def layer_bytes(workload: Workload, config: ParallelConfig) -> Bytes:
    """Bytes that a layer keeps for one microbatch: n b s f / t for silu(gate), unless the MLP is recomputed, n b s (k + v) / t
    for copied keys and values, and n b s (q + k + h) / t for rotated queries and keys and the copied result of attention."""
    model, total = workload.model, 0.0
    kv = max(model.key_value_size // config.tp, model.head_dim + model.v_head_dim)
    tokens = config.microbatch_size * (workload.seq_len // config.cp)
    if "silu" in config.memory.keeps and model.mlp == "swiglu" and not config.repeats_mlp(model.experts):
        copies = model.experts_per_token * config.load if model.experts else 1  # of each token, whatever etp
        routed = copies * model.ffn_hidden
        total += tokens * (routed + model.shared_ffn_hidden) / config.tp
    if "kv_copy" in config.memory.keeps:
        total += tokens * kv
    if "rotated_copies" in config.memory.keeps and not model.learned_positions:
        total += tokens * ((model.query_size + model.value_size) // config.tp + kv // 2)
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
    kept = config.gradient_ranks > 1 and name in config.memory.keeps
    return parameters * workload.bytes_per_value if kept else 0.0


def sequence_bytes(workload: Workload, config: ParallelConfig, layers: int, last: bool) -> Bytes:
    """Bytes of tensors of all tokens of a microbatch, n b s h each, which sequence parallelism does not divide by t.

    One buffer has the gathered input of each product in turn, another one the gathered gradients of row-parallel products; both
    are never freed. The sum after the MLP of the last layer exists beside everything that the layers keep. Where the loss comes
    after it (`last`), it is freed before the loss needs more memory than that."""
    if "gather_buffers" not in config.memory.keeps or config.tp == 1 or not config.sequence_parallel:
        return 0.0
    return _all_tokens(workload, config) * ((layers > 0 or last) + (layers > 0) + (layers > 0 and not last))


def delayed_bytes(workload: Workload, config: ParallelConfig, layers: int, first: bool) -> Bytes:
    """Bytes of freed tensors that the allocator cannot reuse yet: inputs of tensor-parallel collectives, n b s h each.

    torch marks the input of a collective as used on NCCL's stream, and reuses its memory only after the device has passed that
    point. The host launches kernels ahead of the device, so inputs pile up (`inputs_ahead`). In a pipeline the host waits for
    each received message, so they are left out there. Before torch runs out of memory it waits for the device and reuses them,
    so they count as reserved memory but not as needed memory."""
    if "collective_inputs" not in config.memory.keeps or config.tp == 1 or config.pp > 1:
        return 0.0
    return _all_tokens(workload, config) * inputs_ahead(layers, first, config)


def with_delayed(needed: Bytes, delayed: Bytes, room: Bytes) -> Bytes:
    """Bytes that torch has reserved where it needs `needed`, cannot reuse `delayed` yet, and may have `room`.

    Without room for both, torch waits for the device, gives all free blocks back and begins anew (pytorch v2.1,
    c10/cuda/CUDACachingAllocator.cpp, release_cached_blocks). How much it has reserved again when it reports is not known: the
    middle between `needed` and `room` is a guess."""
    return needed + delayed if needed + delayed <= room else max(needed, (needed + room) / 2)


def message_bytes(workload: Workload, config: ParallelConfig) -> Bytes:
    """4 n b s h (/ t with sequence parallelism) in a pipeline: buffers of the messages that a stage sends and receives."""
    width = config.tp if config.sequence_parallel else 1
    return 4.0 * _all_tokens(workload, config) / width if config.pp > 1 else 0.0


def inputs_ahead(layers: int, first: bool, config: ParallelConfig) -> float:
    """Number of inputs of collectives by which the host is ahead of the device where memory is fullest (the loss), at most.

    The forward of a layer has two (the sums after attention and after the MLP), its backward two (gradients of inputs: of qkv
    and of gate and up), and the embedding one. Without `launches` the host is ahead by one forward. With them it is ahead by
    `LAUNCHES_AHEAD`: a part of a forward, or a forward and a part of the backward before it. A step of one microbatch has no
    backward before its forward, because the host waits for the device at the end of each step. Launches of head and loss are
    left out."""
    if config.memory.launches is None:
        return 2 * layers + first
    forward, backward = config.memory.launches
    ahead = min(layers, LAUNCHES_AHEAD / forward)
    left = (LAUNCHES_AHEAD - ahead * forward) / backward if max(config.num_microbatches) > 1 else 0.0
    return 2 * (ahead + min(layers, left)) + (first if ahead == layers else 0)


def _all_tokens(workload: Workload, config: ParallelConfig) -> Bytes:
    """n b s h: bytes of one hidden state of all tokens of a microbatch, not divided by t."""
    tokens = config.microbatch_size * (workload.seq_len // config.cp)
    return float(tokens * workload.model.hidden * workload.bytes_per_value)
