"""Context parallelism by gathers (`cp_algo` all_gather): each rank gathers the keys and values of all, and waits for them.

A rank has two chunks of each sequence, one from each end, and computes the attention of each in one kernel, through all keys up
to it; the two together have as many as those of any other rank. Nothing is merged. In a backward keys and values are gathered
again, and the gradients of all are scattered to their ranks (Megatron-Core's --cp-comm-type all_gather; Llama 3's software
gathers keys and values as well, arXiv 2407.21783, section 3.3.2).

Passes over memory (NVIDIA/TransformerEngine d0067d0d, pytorch/attention/dot_product_attention/context_parallel.py,
AttnFuncWithCPAndKVAllGather), bytes for each value of tensors with the sequence first:

forward     what was gathered is put into the order of the sequence (torch.index_select of k_ag and v_ag), 4; the result of each
            chunk is copied to its place, 4
backward    what was gathered is put into order again, 4; gradients of all keys and values are set to zero, 2, added up for the
            keys of each chunk, 6, and put back into the order of the ranks, 4; gradients of queries are copied, 4

Left out: the memory that the gathered keys and values of one layer take.
"""

from __future__ import annotations

from sim.kernels.ring_copies import behind_attention
from sim.plan.context_parallelism import GATHER
from sim.plan.parallel_config import ParallelConfig
from sim.units import Bytes
from sim.workload.kernels import Attention, Kernel, Pass
from sim.workload.workload import Workload

NAME = "gathered keys"
"""Name of the pass that stands for all of them."""
ZEROED, COPIED, ADDED = 1, 2, 3
"""Values that are read and written for each value that is set to zero, copied, and added to another one."""
LAUNCHES = (4, 12)
"""Kernels (forward, backward): two for each kind of pass, of keys and values or of two chunks, and four sums."""


def with_gathers(kernels: tuple[Kernel, ...], nbytes: Bytes, config: ParallelConfig) -> tuple[Kernel, ...]:
    """The kernels of a layer with these passes behind the attention core; `nbytes` a value."""
    if config.cp == 1 or config.cp_algo != GATHER:
        return kernels
    return behind_attention(kernels, lambda core: _passes(core, nbytes))


def collectives(
    workload: Workload, config: ParallelConfig, layers: int, backward: bool
) -> tuple[tuple[str, str, Bytes, float], ...]:
    """(kind of group, operation, payload, count) of the gathers and scatters of one microbatch on one stage: of keys and of
    values, counted as two of half the bytes of both."""
    if config.cp == 1 or config.cp_algo != GATHER:
        return ()
    model = workload.model
    width = max(model.key_value_size / config.tp, model.head_dim + model.v_head_dim)
    payload = config.microbatch_size * workload.seq_len * width * workload.bytes_per_value / 2
    gathers = layers + config.recomputed(layers) if backward else layers
    found = (("cp", "all_gather", payload, 2.0 * gathers),)
    return (*found, ("cp", "reduce_scatter", payload, 2.0 * layers)) if backward else found


def _passes(core: Attention, nbytes: Bytes) -> Pass:
    tokens, value = core.batch * core.seq_len, core.value_dim or core.head_dim
    keys, own = tokens * core.kv_heads * core.both_dims, tokens / core.cp * core.heads
    seen = 1 + 1 / (2 * core.cp)  # keys of both chunks, over those of the sequence
    forward = nbytes * COPIED * (keys + own * value)
    backward = nbytes * ((COPIED + ZEROED + ADDED * seen + COPIED) * keys + COPIED * own * core.head_dim)
    return Pass(NAME, forward, backward=backward, launches=LAUNCHES)
