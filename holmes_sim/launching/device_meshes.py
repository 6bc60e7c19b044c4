"""FlagScale's meshes of device types, for plans whose stages are unlike.

A mesh here is one pipeline rank, or the pipeline ranks that share hosts; its hosts have one device type in the hostfile. Rules
and names are those that `holmes_sim.exporters.flagscale` cites."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from holmes_sim.launching import hosts, megatron_flags, offload
from sim.kernels import tensor_overlap
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.workload.workload import Workload


def are_needed(config: ParallelConfig) -> bool:
    """Whether stages are so unlike that each needs a mesh: in degrees, or in the number of layers that they recompute."""
    degrees = config.stage_tp, config.stage_dp, config.stage_ep, config.stage_etp
    return any(degrees) or len(set(config.recompute_layers)) > 1


def unsupported_layout(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """Layouts and models that meshes cannot express, beside the limits of Megatron-LM, or that were not tried with them.

    A rank takes its mesh's number of pipeline ranks for that of the pipeline (pre_validate_args), and builds layers that
    predict further tokens where its pipeline rank is the last of so many (core/transformer/multi_token_prediction.py)."""
    yield from offload.refused(config, "not tried with its meshes of device types")
    yield from megatron_flags.unsupported_optimizer(config, workload)
    if workload.model.mtp_layers:
        yield f"mtp_layers {workload.model.mtp_layers}: with meshes it builds them on the last stage of the first mesh; 0"
    if config.dispatcher != "alltoall":
        yield f"dispatcher {config.dispatcher}: not tried with its meshes of device types; dispatcher alltoall"
    if tensor_overlap.is_whole(config):
        yield "tp_overlap: not tried with its meshes of device types; a stack without tp_overlap"
    if config.vpp > 1:
        yield f"vpp {config.vpp}: its meshes of device types have no virtual stages; vpp 1 (--vpp 1)"
    if config.cp > 1:
        yield f"cp {config.cp}: its meshes of device types have no context parallelism; cp 1"
    if config.stage_ep and min(config.stage_ep) == 1:
        yield f"stage_ep {', '.join(map(str, config.stage_ep))}: ep is 1 on all its meshes or on none; 2 or more on each stage"
    if config.stage_tp and not config.sequence_parallel:
        yield "sequence_parallel false: between meshes of unlike tp it sends slices of the sequence; sequence_parallel true"
    if config.stage_tp and workload.model.tied_embeddings and config.stage_tp[0] != config.stage_tp[-1]:
        yield (
            f"stage_tp {', '.join(map(str, config.stage_tp))}: it ties the embedding of end stages of equal tp; the same for "
            "the first and the last stage"
        )
    if config.zero_shard_size is not None and config.zero_shard_size < config.most_dp_cp:
        yield f"zero_shard_size {config.zero_shard_size}: all replicas shard the optimizer state; no zero_shard_size"


def unsupported_placement(plan: Plan) -> Iterator[str]:
    """Stages without layers, meshes of several pipeline ranks on shared hosts, and layers that differ by their number: a mesh
    of one pipeline rank builds those from number 1 on (get_transformer_layer_offset of core/transformer/transformer_layer.py).
    """
    config, model = plan.config, plan.workload.model
    yield from megatron_flags.without_layers(plan)
    if any(past - first == 1 for first, past in meshes(plan)[1:]) and len(model.kinds(0, model.layers)) > 1:
        yield (
            f"model {model.name}: its layers differ, and a mesh of one pipeline rank builds the first ones; a model of equal "
            "layers, or equal stages"
        )
    for first, past in meshes(plan):
        for name, degree_of in (("tp", config.tp_of), ("dp", config.dp_of), ("ep", config.ep_of), ("etp", config.etp_of)):
            if len({degree_of(pp_rank) for pp_rank in range(first, past)}) > 1:
                yield (
                    f"pipeline ranks {first} to {past - 1} on shared hosts: a mesh has one {name}; hosts whose pipeline ranks "
                    f"have one {name}"
                )
    for first, past in meshes(plan)[:-1]:
        if past - first > 1 and config.dp_of(first) > 1:
            yield (
                f"pipeline ranks {first} to {past - 1} on shared hosts: between meshes it joins the replicas of a mesh "
                "with several pipeline ranks in a wrong order; hosts with one pipeline rank each, or dp 1"
            )


def hetero(plan: Plan) -> dict[str, object]:
    """Arguments of the meshes: tp, cp, ep, dp and number of pipeline ranks of each, and layers of each stage."""
    config, found = plan.config, meshes(plan)
    return {
        "enable_hetero": True,
        "hetero_device_types": [_label(mesh) for mesh in found],
        "hetero_current_device_type": _label(found[0]),
        "hetero_process_meshes": [
            number
            for first, past in found
            for number in (config.tp_of(first), config.cp, config.ep_of(first), config.dp_of(first), past - first)
        ],
        "hetero_pipeline_layer_split": [stage.layers for stage in plan.stages],
    }


def expert_degrees(plan: Plan) -> dict[str, object]:
    """The tensor-parallel degree of the experts of each mesh, where they differ; else one number says it for all (build_all_
    process_meshes of train/hetero/parallel_context.py)."""
    degrees = [plan.config.of_pp_rank(first).expert_tp for first, _ in meshes(plan)]
    differ = plan.workload.model.experts and len(set(degrees)) > 1
    return {"expert_tensor_parallel_size_per_process_mesh": degrees} if differ else {}


def recomputation(config: ParallelConfig) -> dict[str, object]:
    """Recomputed modules, whose list its runner flattens (flatten_dict_to_args of runner/utils.py at 16a2dd5); and recomputed
    layers of each stage, where they differ: one list for each stage, [1 stage, microbatches, value].

    Values: 1 for granularity full, 1 for method block, and the number of layers. A stage of 0 layers has granularity 0, none
    (flagscale/backends/Megatron-LM/megatron/core/transformer/transformer_block.py.patch)."""
    counts, microbatches = config.recompute_layers, config.num_microbatches[0]
    if set(config.modules) - {"core_attn"}:
        return {"recompute_modules": list(config.modules)}
    if len(set(counts)) < 2:
        return {}
    values = {"granularity": [int(count > 0) for count in counts], "method": [1] * len(counts), "num_layers": counts}
    return {
        f"recompute_{name}_per_stage_micro_batch": [[1, microbatches, value] for value in listed]
        for name, listed in values.items()
    }


def meshes(plan: Plan) -> list[tuple[int, int]]:
    """Pipeline ranks [first, past) of every mesh. Pipeline ranks that share a host are in one mesh."""
    at = plan.config.coordinates
    spans = [(at(min(host.ranks))[2], at(max(host.ranks))[2]) for host in hosts.of_plan(plan)]
    joined = {pp_rank for low, high in spans for pp_rank in range(low + 1, high + 1)}
    firsts = [pp_rank for pp_rank in range(plan.config.pp) if pp_rank not in joined]
    return list(itertools.pairwise([*firsts, plan.config.pp]))


def types(plan: Plan) -> dict[str, str]:
    """Host -> its device type; empty where no meshes are needed."""
    if not are_needed(plan.config):
        return {}
    label_of = {pp_rank: _label((first, past)) for first, past in meshes(plan) for pp_rank in range(first, past)}
    return {host.name: label_of[plan.config.coordinates(host.ranks[0])[2]] for host in hosts.of_plan(plan)}


def _label(mesh: tuple[int, int]) -> str:
    first, past = mesh
    return f"stage{first}" if past - first == 1 else f"stages{first}-{past - 1}"
