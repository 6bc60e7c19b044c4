"""Stages of unlike tensor- or data-parallel degrees, or with unlike numbers of recomputed layers."""

from __future__ import annotations

from collections.abc import Iterator

from sim.plan.parallel_config import ParallelConfig


def unlike_degrees(
    config: ParallelConfig, reason: str = "all its stages have one {kind}-parallel degree; the same for each (plan with --for)"
) -> Iterator[str]:
    """Unlike degrees, for frameworks whose degrees are one number each. The reason may have {name} and {kind} of a degree."""
    for name, kind, degrees in (("tp", "tensor", config.stage_tp), ("dp", "data", config.stage_dp)):
        if degrees:
            yield f"stage_{name} {', '.join(map(str, degrees))}: {reason.format(name=name, kind=kind)}"


def unlike_recomputation(config: ParallelConfig) -> Iterator[str]:
    """Unlike numbers of recomputed layers, for Megatron-LM, whose flag has one number."""
    if len(set(config.recompute_layers)) > 1:
        counts = ", ".join(map(str, config.recompute_layers))
        yield (
            f"recompute_layers {counts}: --recompute-num-layers is one number for all stages; the same for each stage "
            "(plan with --for)"
        )
