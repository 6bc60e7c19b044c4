"""DualPipeV in a launch of FlagScale, whose runner starts its Megatron-LM with flags.

flagos-ai/FlagScale 16a2dd5 (2025-11-27) with its Megatron-LM, 8479eb35, as `holmes_sim.launching.flagscale_dualpipev` writes
it: each rank has two equally long stages along a V, so that rank r has stages r and 2 pp - 1 - r."""

from __future__ import annotations

from collections.abc import Sequence

from holmes_sim.launch_reading.flags import Flags
from holmes_sim.launching.flagscale_dualpipev import NAME as NAME

USED, PAIRS = "use-dualpipev", "moe-fb-overlap"
"""Flags of the schedule, and of the exchanges of tokens that run beside the other pass of a pair."""


def is_used(flags: Flags) -> bool:
    """Whether a launch has the schedule; its flags are read."""
    flags.has(PAIRS)
    return flags.has(USED)


def stages(flags: Flags, by_rank: Sequence[float], vpp: int) -> tuple[int, ...]:
    """Layers of the stages in the order in which a microbatch passes them, from those of each pipeline rank. Raises HolmesError
    where a rank cannot halve its layers or has virtual stages, and where there is only one."""
    if len(by_rank) < 2:
        raise flags.fault(USED, "its pipeline has two ranks or more; --pipeline-model-parallel-size 2")
    if vpp > 1:
        raise flags.fault(USED, f"each rank has two stages, not vpp {vpp}; no flags of virtual stages")
    odd = next((layers for layers in by_rank if layers % 2), None)
    if odd is not None:
        raise flags.fault(USED, f"a rank halves its layers, which {odd:g} layers cannot be; an even number on each rank")
    halves = tuple(int(layers) // 2 for layers in by_rank)
    return (*halves, *reversed(halves))


def assumed(flags: Flags) -> tuple[str, ...]:
    """What a launch without overlapped pairs assumes."""
    if USED not in flags.values or PAIRS in flags.values:
        return ()
    return (f"--{USED} without --{PAIRS}: exchanges of tokens are taken to run beside the other pass of a pair",)
