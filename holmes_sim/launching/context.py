"""Context parallelism by all-to-all or by gathers."""

from __future__ import annotations

from collections.abc import Iterator

from sim.plan.parallel_config import ParallelConfig


def ulysses(config: ParallelConfig, why: str) -> Iterator[str]:
    """A fault where cp ranks exchange heads or wait for all keys, for exports that write another exchange; `why` says which."""
    if config.cp > 1 and config.cp_algo != "ring":
        yield f"cp_algo {config.cp_algo}: {why}; cp_algo ring"
