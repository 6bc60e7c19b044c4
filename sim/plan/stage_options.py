"""ZeRO stage and offload of each pipeline rank by itself, where stages differ: `stage_zero` and `stage_offload`."""

from __future__ import annotations

from collections.abc import Sequence

from sim.errors import NotModelled, PlanError
from sim.plan.offloading import CHOICES, PARAMETERS, WORDS, Offloading

OFFLOADS = tuple(name for name, words in CHOICES.items() if PARAMETERS not in words)
"""What the hosts of one pipeline rank may keep; weights and gradients in host memory are modelled for single devices only."""


class StageOptions(Offloading):
    """The ZeRO stage and the offload of each pipeline rank."""

    __slots__ = ()
    pp: int
    vpp: int
    zero_stage: int
    zero_shard_size: int | None
    tied_shards: bool
    stage_zero: tuple[int, ...]
    stage_offload: tuple[str, ...]
    stage_recompute: tuple[str, ...]
    stage_microbatch_size: tuple[int, ...]

    @property
    def has_stage_options(self) -> bool:
        """Whether pipeline ranks differ in ZeRO stage, offload, recomputation or microbatch size."""
        return bool(self.stage_zero or self.stage_offload or self.stage_recompute or self.stage_microbatch_size)

    def zero_of(self, pp_rank: int) -> int:
        """ZeRO stage of a pipeline rank."""
        return self.stage_zero[pp_rank] if self.stage_zero else self.zero_stage

    def offload_of(self, pp_rank: int) -> tuple[str, ...]:
        """What the hosts keep of a pipeline rank."""
        return CHOICES[self.stage_offload[pp_rank]] if self.stage_offload else self.offload


def words_of(choices: Sequence[str]) -> tuple[str, ...]:
    """All that hosts keep of some stage, in the order of `sim.plan.offloading.WORDS`."""
    kept = {word for choice in choices for word in CHOICES.get(choice, ())}
    return tuple(word for word in WORDS if word in kept)


def check_stage_options(config: StageOptions, stages: Sequence[int]) -> None:
    """Check `stage_zero`, of ZeRO `stages`, and `stage_offload` of a configuration.

    Raises PlanError if they are not values of the pipeline ranks that differ, and NotModelled with
    `zero_shard_size`, or `tied_shards` beside a ZeRO stage of 0."""
    if values := config.stage_zero:
        _check("stage_zero", values, stages, config)
        if max(values) != config.zero_stage:
            raise PlanError(
                f"stage_zero {_listed(values)}: zero_stage is the largest of them, {max(values)}, not {config.zero_stage}"
            )
        if config.zero_shard_size is not None:
            raise NotModelled(f"stage_zero with zero_shard_size {config.zero_shard_size} is not modelled; one of both")
        if config.tied_shards and min(values) == 0:
            raise NotModelled(f"stage_zero {_listed(values)} with tied_shards is not modelled; 1 to 3 on all stages")
    if choices := config.stage_offload:
        _check("stage_offload", choices, OFFLOADS, config)
        if set(kept := words_of(choices)) != set(config.offload):
            raise PlanError(
                f"stage_offload {_listed(choices)}: offload is all that some stage offloads, {_listed(kept)}, not "
                f"{_listed(config.offload) or 'none'}"
            )


def _check(name: str, values: Sequence[object], known: Sequence[object], config: StageOptions) -> None:
    for value in values:
        if value not in known:
            raise PlanError(f"{name} {value!r} is unknown; known: {_listed(known)}")
    if len(values) != config.pp or len(set(values)) == 1:
        raise PlanError(
            f"{name} {_listed(values)}: one value for each of pp {config.pp} pipeline ranks, not all equal; leave it out where "
            "they are"
        )


def _listed(values: Sequence[object]) -> str:
    return ", ".join(map(str, values))
