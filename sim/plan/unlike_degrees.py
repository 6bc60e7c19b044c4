"""Checks of stages with unlike tensor-, data- or context-parallel degrees."""

from __future__ import annotations

import itertools

from sim.errors import NotModelled, PlanError
from sim.plan import token_parts
from sim.plan.expert_parallelism import ExpertParallelism


def check_degrees(config: ExpertParallelism, microbatch_size: int) -> None:
    """Check `stage_tp`, `stage_dp` and `stage_cp`.

    Raises PlanError if they are not degrees of the pipeline ranks or a microbatch cannot be divided among the ranks of a
    replica, and NotModelled if the parts of two stages do not match."""
    if config.stage_cp:
        _check_context(config)
    if config.stage_tp:
        _check_kind(config, "tp", config.stage_tp, max(config.stage_tp) == config.tp > min(config.stage_tp))
    if not config.stage_dp:
        return
    _check_kind(config, "dp", config.stage_dp, min(config.stage_dp) == config.dp < max(config.stage_dp))
    if microbatch_size % (most := max(config.stage_dp) // config.dp):
        raise PlanError(
            f"stage_dp {_listed(config.stage_dp)}: up to {most} ranks divide a microbatch of one of dp {config.dp} replicas, "
            f"but microbatch_size is {microbatch_size}; a multiple of {most}"
        )


def _check_kind(config: ExpertParallelism, name: str, degrees: tuple[int, ...], fits: bool) -> None:
    """Check unlike degrees of one kind; `fits`: the degree of the whole plan is the largest tp, or the smallest dp."""
    one, other = ("below", "above") if name == "tp" else ("above", "below")  # dp and cp are the smallest
    whole: int = getattr(config, name)
    if len(degrees) != config.pp or not fits:
        raise PlanError(
            f"stage_{name} {_listed(degrees)}: one degree for each of pp {config.pp} pipeline ranks, of which some are {one} "
            f"{name} {whole} and none {other}; leave it out where all are equal"
        )
    if any(large % small for small, large in itertools.pairwise(sorted(degrees))):
        raise NotModelled(f"stage_{name} {_listed(degrees)}: of two degrees, one must divide the other")


def _check_context(config: ExpertParallelism) -> None:
    """Check unlike cp, and that the tokens of each two stages match (`sim.plan.token_parts`)."""
    _check_kind(config, "cp", config.stage_cp, min(config.stage_cp) == config.cp < max(config.stage_cp))
    for stages in itertools.combinations(sorted({config.context_of(pp_rank) for pp_rank in range(config.pp)}), 2):
        if not token_parts.match(*stages):
            (cp, tp), (other_cp, other_tp) = stages
            raise NotModelled(
                f"stage_cp {_listed(config.stage_cp)}: the tokens of ranks with tp {tp} and cp {cp} and of ranks with tp "
                f"{other_tp} and cp {other_cp} do not match; tp is 1 or even, and of both tp x cp (a tp of 1 counts as 2) one "
                "divides the other"
            )


def check_tied_ends(config: ExpertParallelism, head: int, sharded: tuple[bool, bool]) -> None:
    """Check the degrees of the first pipeline rank and of the one with the `head`, which share a tied embedding.

    `sharded`: whether ZeRO shards the optimizer state of each of both. Raises NotModelled if the sum of the gradient between
    both is not modelled."""
    if head == 0 and config.pp > 1:
        raise NotModelled("config.schedule: both ends of the pipeline are on one rank; not modelled with a tied embedding")
    if config.cp_of(0) != config.cp_of(head):
        raise NotModelled(
            f"config.stage_cp: cp {config.cp_of(0)} on the first stage and {config.cp_of(head)} on that of the head, which "
            "share a tied embedding: its gradient is not summed between unlike numbers of ranks; equal cp, or an untied head"
        )
    ends = config.dp_of(0), config.dp_of(head)
    if ends[0] != ends[1]:
        raise NotModelled(
            f"config.stage_dp: dp {ends[0]} on the first stage and {ends[1]} on that of the head, which share a tied "
            "embedding: its gradient is not summed between unlike numbers of ranks; equal dp of both, or an untied head"
        )
    ends = config.tp_of(0), config.tp_of(head)
    if ends[0] != ends[1] and any(sharded) and config.dp_cp_of(0) > 1:
        raise NotModelled(
            f"config.stage_tp: tp {ends[0]} on the first stage and {ends[1]} on that of the head, which share a tied "
            "embedding: their shards of its gradient differ; zero_stage 0, or equal tp"
        )
    if sharded[0] != sharded[1]:
        raise NotModelled(
            "config.stage_zero: 0 on one and more on the other of the first stage and that of the head, which share a tied "
            "embedding: only one would shard its gradient; 0 on both, or on neither"
        )


def _listed(values: tuple[int, ...]) -> str:
    return ", ".join(map(str, values))
