"""Sums of a tied embedding's gradient."""

from __future__ import annotations

from collections.abc import Iterator

from sim.plan.parallel_config import ParallelConfig
from sim.workload.workload import Workload


def shards(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """Sums of shards, for frameworks in which the end stages sum the whole gradient."""
    if config.tied_shards and config.pp > 1 and workload.model.tied_embeddings:
        yield "tied_shards: its end stages sum the whole gradient of a tied embedding; tied_shards false (plan with --for)"
