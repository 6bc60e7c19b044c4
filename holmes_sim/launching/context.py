"""Context parallelism by all-to-all or by gathers, and its words in Megatron-LM and Megatron-Bridge."""

from __future__ import annotations

from collections.abc import Iterator

from sim.plan.context_parallelism import GATHER, HYBRID, head_ranks, ring_ranks
from sim.plan.parallel_config import ParallelConfig

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


def ulysses(config: ParallelConfig, why: str) -> Iterator[str]:
    """A fault where cp ranks exchange heads or wait for all keys, for exports that write another exchange; `why` says which."""
    if config.cp > 1 and config.cp_algo != "ring":
        yield f"cp_algo {config.cp_algo}: {why}; cp_algo ring"
