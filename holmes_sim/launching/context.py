"""Context parallelism by all-to-all or by gathers, and its words in Megatron-LM and Megatron-Bridge."""

from __future__ import annotations

from collections.abc import Iterator

from sim.plan.context_parallelism import GATHER, HYBRID, head_ranks, ring_ranks
from sim.plan.parallel_config import ParallelConfig
from sim.workload.workload import Workload

COMM_TYPES = {"ring": "p2p", "ulysses": "a2a", GATHER: "all_gather", HYBRID: "a2a+p2p"}
"""`cp_algo` -> value of --cp-comm-type."""


def flags(config: ParallelConfig) -> dict[str, str]:
    """Flags of Megatron-LM for the exchange of cp ranks."""
    if config.cp == 1:
        return {}
    sizes = " ".join(map(str, levels(config)))
    return {"cp-comm-type": COMM_TYPES[config.cp_algo]} | ({"hierarchical-context-parallel-sizes": sizes} if sizes else {})


def levels(config: ParallelConfig) -> tuple[int, ...]:
    """Ranks that exchange heads, and ranks of each ring (--hierarchical-context-parallel-sizes); none but under `hybrid`."""
    return (head_ranks(config), ring_ranks(config)) if config.cp > 1 and config.cp_algo == HYBRID else ()


def unsupported(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """Sequences and heads that ranks cannot divide in Megatron-LM: tp the tokens of a rank with sequence parallelism
    (NVIDIA/Megatron-LM d98e8a64, megatron/core/tensor_parallel/mappings.py, line 72), and ranks that exchange heads those of a
    tp rank (Transformer Engine, AttnFuncWithCPAndQKVOA2A)."""
    if config.sequence_parallel and workload.seq_len // config.cp % config.tp:
        named = f" with cp {config.cp}" if config.cp > 1 else ""
        yield (
            f"seq_len {workload.seq_len}{named}: sequence parallelism divides a rank's tokens by tp {config.tp}; a multiple of "
            f"{config.tp * config.cp}, or sequence_parallel false"
        )
    ranks, model = head_ranks(config), workload.model
    heads = {"heads": model.heads, "kv_heads": model.heads if model.attention == "mla" else model.kv_heads}
    for key, number in heads.items():
        own = max(number // config.tp, 1)
        if own % ranks:
            yield (
                f"{key} {number}: cp_algo {config.cp_algo} deals the {own} of a tp rank out to {ranks} ranks, which must "
                "divide them; cp_algo ring"
            )
            return


def ulysses(config: ParallelConfig, why: str, others: tuple[str, ...] = ()) -> Iterator[str]:
    """A fault where cp ranks exchange heads or wait for all keys, for exports that write another exchange; `why` says which.
    `others`: algorithms that are taken beside the ring."""
    if config.cp > 1 and config.cp_algo not in ("ring", *others):
        yield f"cp_algo {config.cp_algo}: {why}; cp_algo {' or '.join(('ring', *others))}"
