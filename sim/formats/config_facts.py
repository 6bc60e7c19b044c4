"""The keys of a parallel configuration in plans and cases, and their reader and writer."""

from __future__ import annotations

from typing import Any

from sim.formats.fields import Count, Flag, StrictModel, Whole, Wholes
from sim.plan.parallel_config import ParallelConfig


class ConfigFacts(StrictModel):
    """Parallel degrees and options of the training run. `num_microbatches` has one number for each replica, `recompute_layers`
    one for all stages, or one for each. `stage_tp` has the tensor-parallel degree of each pipeline rank, where they differ;
    `tp` is the largest."""

    tp: Count
    pp: Count
    dp: Count
    cp: Count = 1
    ep: Count = 1
    vpp: Count = 1
    schedule: str
    microbatch_size: Count
    num_microbatches: list[Count]
    zero_stage: Whole = 1
    zero_shard_size: Count | None = None
    recompute: str
    recompute_layers: Wholes = ()
    recompute_modules: tuple[str, ...] = ()
    sequence_parallel: Flag
    overlap_grad_reduce: Flag = True
    overlap_param_gather: Flag = True
    attention: str = "flash"
    gradient_precision: str = "fp32"
    tied_shards: Flag = False
    stage_tp: tuple[Count, ...] = ()


def config_facts(config: ParallelConfig) -> dict[str, Any]:
    """A parallel configuration as plain data; facts of the software stack are not part of it."""
    found = {
        name: getattr(config, name)
        for name in ConfigFacts.model_fields
        if name not in ("recompute_layers", "recompute_modules", "tied_shards", "stage_tp")
    }
    if counts := config.recompute_layers:
        found["recompute_layers"] = list(counts) if len(counts) > 1 else counts[0]
    if config.recompute_modules:
        found["recompute_modules"] = list(config.recompute_modules)
    if config.tied_shards:
        found["tied_shards"] = True
    if config.stage_tp:
        found["stage_tp"] = list(config.stage_tp)
    return found | {"num_microbatches": list(config.num_microbatches)}


def config_values(written: ConfigFacts) -> dict[str, Any]:
    """The written configuration as arguments of a `ParallelConfig`, without the facts of the software stack."""
    found = {name: getattr(written, name) for name in ConfigFacts.model_fields}
    return found | {"num_microbatches": tuple(written.num_microbatches)}
