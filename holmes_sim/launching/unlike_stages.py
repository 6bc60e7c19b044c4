"""Stages of unlike tensor-parallel degrees."""

from __future__ import annotations

from collections.abc import Iterator

from sim.plan.parallel_config import ParallelConfig


def unlike_tp(
    config: ParallelConfig, reason: str = "all its stages have one tensor-parallel degree; the same for each (plan with --for)"
) -> Iterator[str]:
    """Unlike degrees, for frameworks whose tensor-parallel degree is one number."""
    if config.stage_tp:
        yield f"stage_tp {', '.join(map(str, config.stage_tp))}: {reason}"
