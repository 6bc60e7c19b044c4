"""Passes over memory of a ring of context parallelism: joining keys and values, merging results, adding up gradients.

Where keys and values go around a ring, a rank computes its attention in cp steps, one for each rank's keys. Steps give partial
results, which are weighted by their sums of exponentials, and partial gradients, which are added up. Every such pass is counted
for the last rank of a ring, whose steps multiply all its queries, so that it has most of them; the others wait for it.

Transformer Engine (NVIDIA/TransformerEngine d0067d0d, pytorch/attention/dot_product_attention/context_parallel.py,
AttnFuncWithCPAndKVP2P, attention in bf16 on tensors with the sequence first; the same passes in v2.5). Bytes for each value:

forward     keys and values are joined to travel together (torch.cat of p2p_comm_buffers[0]), 4; the first step's result is
            weighted and written (flash_attn_fwd_out_correction_init), 4, and each other one is weighted and added
            (flash_attn_fwd_out_correction), 6: one compiled kernel each. Sums of exponentials are copied, and corrected in
            each step but the first, in kernels that move little (flash_attn_fwd_softmax_lse_correction)
backward    keys and values are copied (p2p_comm_buffers[0][0].copy_), 4; gradients of queries are copied in the first step, 4,
            and added in the others (dq.add_), 6; those of keys and of values are copied to one half first, and added to one
            half, and in the last step to both (dk.add_, dv.add_), a kernel for each of the two

torch (`ParallelConfig.gathered_keys`; pytorch/pytorch f2127dbd torch/distributed/tensor/experimental/_attention.py,
_templated_ring_attention and its backward; torchtitan 9dec370 torchtitan/models/llama/model.py, repeat_kv): keys and values
have as many heads as queries by then; results and gradients are added up in fp32 (convert_to_f32), and joined gradients of keys
and values travel in fp32. Counted as torch.compile fuses them, each sum one kernel.

Left out: the copies of torch that repeat the heads of keys and values, and rearranging tensors with the batch first.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from sim.plan.context_parallelism import ring_ranks
from sim.plan.parallel_config import ParallelConfig
from sim.units import Bytes
from sim.workload.kernels import Attention, Kernel, Pass

NAME = "ring"
"""Name of the pass that stands for all of them."""
COPIED, ADDED = 2, 3
"""Values that a copy, and a sum, reads and writes for each value."""
SINGLE = 4.0
"""Bytes of a value of fp32."""


def streams(config: ParallelConfig) -> int:
    """Streams on which the steps of a ring run by turns in a forward: two in Transformer Engine ("to resolve wave quantization
    issue of Flash Attn in each step"), whose backward has one, and one in torch."""
    return 1 if config.gathered_keys or ring_ranks(config) == 1 else 2


def with_ring(kernels: tuple[Kernel, ...], nbytes: Bytes, config: ParallelConfig) -> tuple[Kernel, ...]:
    """The kernels of a layer with the passes of its ring behind the attention core, where there is one; `nbytes` a value."""
    if ring_ranks(config) == 1:
        return kernels
    passes = _in_torch if config.gathered_keys else _in_transformer_engine
    return behind_attention(kernels, lambda core: passes(core, nbytes))


def behind_attention(kernels: tuple[Kernel, ...], passes: Callable[[Attention], Pass]) -> tuple[Kernel, ...]:
    """The kernels of a layer with the passes that stand behind its attention core."""
    each = ((kernel, passes(kernel)) if isinstance(kernel, Attention) else (kernel,) for kernel in kernels)
    return tuple(itertools.chain.from_iterable(each))


def ring_launches(kernels: tuple[Kernel, ...]) -> int:
    """Kernels that the host launches for the forward of a ring beside those of a layer without one: its passes, and an
    attention kernel and an exchange for each step but the first."""
    found = sum(kernel.launches[0] for kernel in kernels if isinstance(kernel, Pass) and kernel.name == NAME)
    return found + sum(2 * (kernel.steps - 1) for kernel in kernels if isinstance(kernel, Attention))


def _in_transformer_engine(core: Attention, nbytes: Bytes) -> Pass:
    """The passes of Transformer Engine. Ranks that divide heads (hybrid) have a head of keys and values each at least."""
    tokens, cp, value = core.batch * core.seq_len / core.cp, core.steps, core.value_dim or core.head_dim
    kv_heads = max(core.kv_heads, core.cp // cp)
    keys, queries, results = (
        tokens * width for width in (kv_heads * core.both_dims, core.heads * core.head_dim, core.heads * value)
    )
    others = cp - 1
    rows = (COPIED + ADDED * others) * SINGLE * tokens * core.heads  # of sums of exponentials
    forward = nbytes * (COPIED * keys + (COPIED + ADDED * others) * results) + rows
    half = COPIED + ADDED * (cp - 2)
    backward = nbytes * ((COPIED + half / 2 + ADDED) * keys + (COPIED + ADDED * others) * queries)
    return Pass(NAME, forward, backward=backward, launches=(1 + 2 * cp, 1 + 3 * cp))


def _in_torch(core: Attention, nbytes: Bytes) -> Pass:
    """The passes of torch: of the first sum the inputs, and of the last one the result, have `nbytes` a value."""
    tokens, cp, value = core.batch * core.seq_len / core.cp, core.cp, core.value_dim or core.head_dim
    keys, queries, results = (
        tokens * width for width in (core.heads * core.both_dims, core.heads * core.head_dim, core.heads * value)
    )
    others, added, less = cp - 1, nbytes + 2 * SINGLE, SINGLE - nbytes
    forward = COPIED * nbytes * keys + (others * added - 2 * less) * results
    first, halves = nbytes + SINGLE, nbytes / 2 + 2 * SINGLE
    backward = (COPIED * nbytes + 2 * first + others * halves) * keys + (first + others * added - less) * queries
    return Pass(NAME, forward, backward=backward, launches=(1 + others, 2 + 2 * cp))
