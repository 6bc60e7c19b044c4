"""Replicas with unlike numbers of microbatches."""

from __future__ import annotations

from collections.abc import Iterator

from sim.plan.parallel_config import ParallelConfig


def unequal(config: ParallelConfig, reason: str = "all replicas have the same number") -> Iterator[str]:
    """Unlike numbers of microbatches, for frameworks in which all replicas have the same number."""
    if len(set(config.num_microbatches)) > 1:
        numbers = ", ".join(map(str, dict.fromkeys(config.num_microbatches)))
        yield f"num_microbatches {numbers}: {reason}; --strategy holmes, or --dp that divides the batch"
