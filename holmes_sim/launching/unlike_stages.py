"""Stages of unlike tensor-parallel degrees, or with unlike numbers of recomputed layers."""

from __future__ import annotations

from collections.abc import Iterator

from sim.plan.parallel_config import ParallelConfig


def unlike_tp(
    config: ParallelConfig, reason: str = "all its stages have one tensor-parallel degree; the same for each (plan with --for)"
) -> Iterator[str]:
    """Unlike degrees, for frameworks whose tensor-parallel degree is one number."""
    if config.stage_tp:
        yield f"stage_tp {', '.join(map(str, config.stage_tp))}: {reason}"


def unlike_recomputation(config: ParallelConfig) -> Iterator[str]:
    """Unlike numbers of recomputed layers, for Megatron-LM, whose flag has one number."""
    if len(set(config.recompute_layers)) > 1:
        counts = ", ".join(map(str, config.recompute_layers))
        yield (
            f"recompute_layers {counts}: --recompute-num-layers is one number for all stages; the same for each stage "
            "(plan with --for)"
        )
