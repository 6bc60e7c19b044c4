"""How messages pass between stages of unlike degrees, in words: by what they are cut, to how many ranks each sends,
and what is gathered. `ParallelConfig.peers` and `payloads.message_bytes` say the same to simulator and backend."""

from __future__ import annotations

from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan


def message_cuts(plan: Plan) -> tuple[str, ...]:
    """A line for each border between stages of unlike tp, dp or cp; none where all stages have equal degrees."""
    config = plan.config
    if not config.has_stage_degrees:
        return ()
    borders = range(config.pp - 1)
    return tuple(_line(config, one) for one in borders if _degrees(config, one) != _degrees(config, one + 1))


def _degrees(config: ParallelConfig, stage: int) -> dict[str, int]:
    return {"tp": config.tp_of(stage), "dp": config.dp_of(stage), "cp": config.cp_of(stage)}


def _line(config: ParallelConfig, stage: int) -> str:
    """The line of the border behind a stage."""
    behind = stage + 1
    ahead, back = (len(config.peers(config.first_rank(one), other)) for one, other in ((stage, behind), (behind, stage)))
    own, other = _degrees(config, stage), _degrees(config, behind)
    unlike = [name for name in own if own[name] != other[name]]
    degrees = " and ".join(", ".join(f"{name} {one[name]}" for name in unlike) for one in (own, other))
    return (
        f"Messages between stages {stage} and {behind} ({degrees}) are re-cut by {_cut(unlike)}: at once, each rank of stage "
        f"{stage} exchanges with {ahead} of stage {behind}, and each of stage {behind} with {back} of stage {stage}; "
        f"{_gathered(config, stage)}."
    )


def _cut(unlike: list[str]) -> str:
    """What a message is cut by: samples, and tokens or slices of what tensor-parallel ranks divide."""
    samples, tokens = ["samples"] * ("dp" in unlike), ["tokens"] * ("cp" in unlike)
    return " and ".join((*samples, *(tokens or ["slices"] * ("tp" in unlike))))


def _gathered(config: ParallelConfig, stage: int) -> str:
    """Which stages gather what they receive, where tensor-parallel ranks need all of it."""
    wide = [str(one) for one in (stage, stage + 1) if config.tp_of(one) > 1]
    if config.sequence_parallel or not wide:
        return "nothing is gathered"
    if config.whole_messages:
        return "whole messages are sent, and nothing is gathered"
    return f"the ranks of stage{'s' * (len(wide) > 1)} {' and '.join(wide)} gather what they receive inside their node"
