"""Configurations that stand for all with the same kernels, passes or sums: by them costs of stages are cached."""

from __future__ import annotations

import functools

from sim.field_changes import changed
from sim.plan.parallel_config import ParallelConfig


@functools.lru_cache(maxsize=4096)
def one_replica(config: ParallelConfig) -> ParallelConfig:
    """A configuration with the same kernels, by which their seconds are cached: with the fewest replicas that hold each expert,
    which is one unless they are divided."""
    if config.dp == 1 or (config.splits_experts and (config.has_stage_degrees or config.stage_ep or config.stage_etp)):
        return config
    fewest = config.expert_replicas
    zero = {"zero_stage": 1, "zero_shard_size": None, "overlap_param_gather": True, "tied_shards": False}
    return _same(changed(config, dp=fewest, num_microbatches=(1,) * fewest, **zero))


@functools.lru_cache(maxsize=4096)
def passing_alike(config: ParallelConfig) -> ParallelConfig:
    """A configuration whose passes take as long, but for exchanges of tokens, by which their seconds are cached: `one_replica`,
    without a schedule where no ring of cp is beside the passes, of which a split backward hides less."""
    if config.shards_parameters:
        return config
    one = one_replica(config)
    whole = config.cp == 1 and not (config.recompute_layers or config.stage_recompute)
    return _same(changed(one, schedule="1f1b", vpp=1)) if whole else one


@functools.lru_cache(maxsize=4096)
def summing_alike(config: ParallelConfig, measured: bool) -> ParallelConfig:
    """A configuration whose stages move and update the same in a step (`Amounts`), by which their seconds are cached.

    measured: some device has a profile, whose seconds of the optimizer may depend on the microbatch size."""
    if config.recompute_layers or config.stage_recompute:
        return config
    size = config.microbatch_size if measured or config.stage_dp else 1
    own = {"microbatch_size": size, "num_microbatches": (1,) * config.dp, "recompute": "none", "recompute_modules": ()}
    return _same(changed(config, **own))


@functools.lru_cache(maxsize=4096)
def _same(config: ParallelConfig) -> ParallelConfig:
    """The first of equal configurations: caches find it without comparing its fields."""
    return config
