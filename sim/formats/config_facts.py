"""The keys of a parallel configuration in plans and cases, and their reader and writer."""

from __future__ import annotations

from typing import Any

from sim import compression
from sim.errors import PlanError
from sim.formats.fields import Count, Flag, StrictModel, Whole, Wholes, Words
from sim.formats.routing_facts import ConfigRoutingFacts, RoutingName, routing_of
from sim.plan.context_parallelism import CP_ALGORITHMS
from sim.plan.expert_parallelism import DISPATCHERS
from sim.plan.parallel_config import ParallelConfig
from sim.workload.model import Model
from sim.workload.routing import BALANCED, Routing

ROUTING_KEYS = ("imbalance", "exchange", "capacity_factor", "pad_to_capacity")
"""Keys of a configuration that a plan file has under `routing`."""


class ConfigFacts(StrictModel):
    """Parallel degrees and options of the training run. `num_microbatches` has one number for each replica, `recompute_layers`
    one for all stages, or one for each. `stage_tp` has the tensor-parallel degree of each pipeline rank, where they differ;
    `tp` is the largest. `stage_dp` has the data-parallel degree of each pipeline rank, where they differ; `dp`, the number of
    replicas, is the smallest, and the ranks of a replica divide the samples of each microbatch. `stage_cp` has the
    context-parallel degree of each pipeline rank, where they differ; `cp` is the smallest. `etp` is the tensor-parallel
    degree of routed experts, where it is not `tp`. `routing` is that of the workload where it is not given. `offload` is what
    the hosts keep: optimizer, optimizer and parameters, activations, or optimizer and activations. `stage_zero` has the ZeRO
    stage of each pipeline rank, where they differ; `zero_stage` is the largest. `stage_offload` has what the hosts of each
    pipeline rank keep, where that differs: none, optimizer, activations or optimizer+activations; `offload` is all of it.
    `stage_recompute` has what each pipeline rank recomputes, where that differs: none, selective, full, or modules joined by +;
    `recompute` is the most of it. `stage_ep` and `stage_etp` have the ep and the etp of each pipeline rank, where they differ;
    `ep` and `etp` are those of the first. `stage_microbatch_size` has the samples of a microbatch of each pipeline rank, where
    they differ; `microbatch_size` is the largest, and `num_microbatches` counts these.
    `message_compression` is how the pipeline's messages between clusters are written: none, int8, int4, top-k=10%,
    adaptive-top-k=10%. `tp_overlap`: collectives of tensor parallelism overlap products; without it, as the stack says."""

    tp: Count
    pp: Count
    dp: Count
    cp: Count = 1
    ep: Count = 1
    etp: Count | None = None
    dispatcher: str = DISPATCHERS[0]
    routing: RoutingName | ConfigRoutingFacts | None = None
    overlap_expert_communication: Flag = False
    overlap_shared_experts: Flag = False
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
    cuda_graphs: tuple[str, ...] = ()
    cp_algo: str = CP_ALGORITHMS[0]
    offload: Words = ()
    stage_tp: tuple[Count, ...] = ()
    stage_dp: tuple[Count, ...] = ()
    stage_cp: tuple[Count, ...] = ()
    stage_ep: tuple[Count, ...] = ()
    stage_etp: tuple[Count, ...] = ()
    stage_zero: tuple[Whole, ...] = ()
    stage_offload: tuple[str, ...] = ()
    stage_recompute: tuple[str, ...] = ()
    stage_microbatch_size: tuple[Count, ...] = ()
    message_compression: str = compression.NONE
    tp_overlap: Flag | None = None


BY_STAGE = tuple(name for name in ConfigFacts.model_fields if name.startswith("stage_"))
"""Keys with a value for each pipeline rank, which only plans with unlike stages have."""
OPTIONAL = (
    "etp", "dispatcher", "routing", "overlap_expert_communication", "overlap_shared_experts", "recompute_layers",
    "recompute_modules", "tied_shards", "cuda_graphs", "cp_algo", "offload", *BY_STAGE, "message_compression",
    "tp_overlap",
)  # fmt: skip
"""Keys that a plan file has only where their value is not the default."""
USUALLY_DEFAULT = (
    "etp", "dispatcher", "overlap_expert_communication", "overlap_shared_experts", "tied_shards", "cp_algo",
    "message_compression",
)  # fmt: skip
"""Those that are written as they are."""


def config_facts(config: ParallelConfig, routing: Routing = BALANCED) -> dict[str, Any]:
    """A parallel configuration as plain data; facts of the software stack are not part of it, nor is what follows from the
    `routing` of its workload."""
    found = {name: getattr(config, name) for name in ConfigFacts.model_fields if name not in OPTIONAL}
    for name in USUALLY_DEFAULT:
        if (value := getattr(config, name)) != ConfigFacts.model_fields[name].default:
            found[name] = value
    own = {key: getattr(config, key) for key in ROUTING_KEYS}
    if own != routing.of_config(config.ep):
        given = {key: value for key, value in own.items() if value != BALANCED.of_config(1)[key]}
        found["routing"] = {"imbalance": config.imbalance} | given if given else "balanced"
    if counts := config.recompute_layers:
        found["recompute_layers"] = list(counts) if len(counts) > 1 else counts[0]
    if config.own_tp_overlap is not None:
        found["tp_overlap"] = config.own_tp_overlap
    for name in ("recompute_modules", "cuda_graphs", "offload", *BY_STAGE):
        if values := getattr(config, name):
            found[name] = list(values)
    return found | {"num_microbatches": list(config.num_microbatches)}


def config_values(written: ConfigFacts, routing: Routing = BALANCED, model: Model | None = None) -> dict[str, Any]:
    """The written configuration as arguments of a `ParallelConfig`, without the facts of the software stack; `routing` and
    `model` are those of the workload. Raises PlanError for tokens of experts that ep does not divide."""
    found = {name: getattr(written, name) for name in ConfigFacts.model_fields if name not in ("routing", "tp_overlap")}
    found["own_tp_overlap"] = written.tp_overlap
    try:
        found |= _routing(written, routing, model)
    except ValueError as error:
        raise PlanError(str(error)) from None
    return found | {"num_microbatches": tuple(written.num_microbatches)}


def _routing(written: ConfigFacts, of_workload: Routing, model: Model | None) -> dict[str, Any]:
    if written.routing is None:
        return of_workload.of_config(written.ep)
    given = routing_of(written.routing, model)
    if isinstance(written.routing, str):
        return given.of_config(written.ep)
    return given.of_config(written.ep) | {"imbalance": given.of_busiest(written.ep), "exchange": written.routing.exchange}
