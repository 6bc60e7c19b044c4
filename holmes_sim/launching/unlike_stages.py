"""Stages of unlike degrees, ZeRO stages, offload, microbatch sizes or recomputation."""

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


def unlike_experts(config: ParallelConfig) -> Iterator[str]:
    """Unlike ep and etp, for frameworks whose degrees are one number each."""
    for name, degrees in (("ep", config.stage_ep), ("etp", config.stage_etp)):
        if degrees:
            yield f"stage_{name} {', '.join(map(str, degrees))}: all its stages divide experts alike; {name} alone"


def unlike_options(config: ParallelConfig) -> Iterator[str]:
    """Unlike cp, ZeRO stages, offload, microbatch sizes or kinds of recomputation of stages, which no framework has;
    `holmes-sim run` executes them."""
    if config.stage_cp:
        yield f"stage_cp {', '.join(map(str, config.stage_cp))}: all its stages have one context-parallel degree; cp alone"
    if config.stage_zero:
        yield f"stage_zero {', '.join(map(str, config.stage_zero))}: all its stages have one ZeRO stage; zero_stage alone"
    if config.stage_offload:
        yield f"stage_offload {', '.join(config.stage_offload)}: all its stages offload alike; offload alone"
    if sizes := config.stage_microbatch_size:
        named = f"stage_microbatch_size {', '.join(map(str, sizes))}"
        yield f"{named}: all its stages have one microbatch size; microbatch_size alone"
    if config.stage_recompute:
        yield (
            f"stage_recompute {', '.join(config.stage_recompute)}: all its stages recompute in the same way; recompute alone"
        )


def unlike_recomputation(config: ParallelConfig) -> Iterator[str]:
    """Unlike numbers of recomputed layers, for Megatron-LM, whose flag has one number."""
    if len(set(config.recompute_layers)) > 1:
        counts = ", ".join(map(str, config.recompute_layers))
        yield (
            f"recompute_layers {counts}: --recompute-num-layers is one number for all stages; the same for each stage "
            "(plan with --for)"
        )
