"""torchtitan: a config function for a plan, launched by torchrun; islands by torchft.

Names and rules are those of torchtitan 0.3.0 (config/configs.py, distributed/parallel_dims.py, pipeline_parallel.py, fsdp.py,
models/common/decoder.py) on torch 2.14 (distributed/pipelining/schedules.py, stage.py):

- Its mesh pp, dp_replicate, dp_shard, cp, tp numbers ranks as plans do; the ranks of an HSDP shard group are consecutive.
- FSDP always shards optimizer state, gradients and weights over dp_shard x cp. In a pipeline, full gradients are kept and
  reduced once, after a stage's last backward, and with `fsdp_reshard_after_forward = "never"` weights are gathered once: ZeRO
  1. Without a pipeline each microbatch gathers and reduces: ZeRO 3, which equals ZeRO 1 and 2 with one microbatch.
- Schedules that torch has by name have the same order as ours, with two exceptions: torch rejects 1F1B with fewer microbatches
  than stages, and its interleaved 1F1B differs with as many microbatches as pipeline ranks. These and zero-bubble schedules are
  written as a CSV of F, B, I, W (`_PipelineScheduleRuntime._load_csv`: one row per pipeline rank; I is our B where the backward
  is split).
- Its trainer passes microbatches to pipelines as `arg_mbs`, which torch 2.13 does not support: a pipeline needs torch 2.14. So
  does its default spmd_backend (fully_shard of torch 2.13 accepts DTensors only); both versions shard partial_dtensor.
- Stages are lists of module names; unknown names are dropped (`_split_module`). What its models take of a shape and of experts
  is in `holmes_sim.launching.torchtitan_models`, what they take of a precision in `torchtitan_precision` beside it.
"""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.launching import (
    adapters,
    context,
    environment,
    head,
    model_facts,
    model_keys,
    offload,
    replicas,
    torch_launch,
    torchft,
    torchtitan_experts,
    torchtitan_models,
    torchtitan_precision,
    torchtitan_schedule,
    unlike_stages,
)
from holmes_sim.launching.folder import File, Launch
from holmes_sim.launching.torchtitan_module import module
from holmes_sim.launching.torchtitan_options import LONGEST
from planner.target import Vendors
from sim.plan.context_parallelism import GATHER
from sim.plan.islands import IslandsPlan
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.workload.workload import Workload

TITLE = "torchtitan 0.3.0"
READERS = "torchtitan 0.3.0 on torch 2.14"
ORDER = 40
ISLANDS_TITLE = "torchtitan 0.3.0 with torchft"
ISLANDS_READERS = (
    "torchtitan 0.3.0 (torch 2.13) with torchft-nightly 2026.10.26 trained two islands of a small model of other plans, a "
    "process each on CPUs over gloo, by every strategy that is exported; exchanges over NCCL, int8 and pipelines were not run"
)
KIND = "framework"
VENDORS: Vendors = "one"
EXCLUDED_VENDORS: tuple[str, ...] = ("huawei",)
MODULE = "holmes_plan.py"
MASK_BLOCK = 128
"""Tokens per block of FlexAttention's mask, which cp cannot split (torch, _context_parallel/_attention.py)."""
UNSHARDED = 3
"""Number of stages per pipeline rank that torch's runtime keeps gathered (_add_unshard_reshard, max_active_stages)."""


def unsupported_layout(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """Layouts that torchtitan's models cannot express, or execute differently."""
    yield from (
        *torchtitan_models.unsupported(config, workload),
        *replicas.unequal(config),
        *unlike_stages.unlike_degrees(config),
    )
    yield from unlike_stages.unlike_experts(config)
    yield from offload.refused(config, "its enable_cpu_offload moves weights and gradients, too (CPUOffloadPolicy of FSDP)")
    if config.recompute_layers:
        yield "recompute_layers: its FullAC is for all layers; none, to recompute all layers"
    if config.modules:
        yield "recompute selective: its SelectiveAC keeps matrix products and recomputes the rest; none or full"
    if config.gradient_precision != "fp32":
        yield f"gradient_precision {config.gradient_precision}: gradients are reduced as fp32 (mixed_precision_reduce); fp32"
    if config.attention != "flash":
        yield f"attention {config.attention}: it has fused attention only (flex, varlen); flash"
    if workload.model.kv_heads % config.tp:
        yield f"tp {config.tp}: it must divide kv_heads {workload.model.kv_heads}; a divisor of it"
    yield from model_keys.other_optimizer(workload)
    yield from context.ulysses(config, "its ranks gather keys and values", (GATHER,))
    yield from adapters.unsupported(workload, adapters.TORCHTITAN)
    yield from torchtitan_precision.unsupported(config, workload)
    yield from (*_unsupported_sequence(config, workload.seq_len), *_unsupported_pipeline(config), *_unsupported_shards(config))


def unsupported_placement(plan: Plan) -> Iterator[str]:
    """Devices of several vendors, or of one that torchtitan does not run on."""
    yield from (*environment.unsupported(plan), *head.unsupported(plan), *torchtitan_precision.unsupported_placement(plan))
    if plan.config.cp > 1 and (bare := next((i for i, stage in enumerate(plan.stages) if not stage.layers), None)) is not None:
        yield (
            f"stages[{bare}].layers: none with cp {plan.config.cp}: it asks the first attention of each stage for its kind "
            "(apply_cp_to_forward); a layer on each stage"
        )
    yield from torchtitan_experts.unsupported_placement(plan)
    vendors = sorted({plan.fleet.spec(device).vendor for device in plan.placement})
    if len(vendors) > 1:
        yield f"vendors {', '.join(vendors)}: it has one device backend for all ranks; a plan on devices of one vendor"
    elif vendors == ["huawei"]:
        yield "vendor huawei: it runs on CUDA and ROCm devices; a plan on devices of nvidia or amd"


def _unsupported_sequence(config: ParallelConfig, length: int) -> Iterator[str]:
    if length > LONGEST:
        yield f"seq_len {length}: its RoPE ends at {LONGEST}; no more than that"
    if config.cp > 1 and length % (MASK_BLOCK * config.cp):
        yield f"seq_len {length} with cp {config.cp}: a rank takes whole mask blocks; a multiple of {MASK_BLOCK * config.cp}"
    pieces = (config.tp if config.sequence_parallel else 1) * (2 * config.cp if config.cp > 1 else 1)
    if length % pieces:
        yield f"seq_len {length}: it is split in {pieces} by tp and cp; a multiple of {pieces}"


def _unsupported_pipeline(config: ParallelConfig) -> Iterator[str]:
    if config.pp == 1 and config.vpp > 1:
        yield f"vpp {config.vpp} with pp 1: there are stages only in a pipeline; vpp 1"
    if config.pp == 1 and config.schedule == "gpipe" and max(config.num_microbatches) > 1:
        yield "schedule gpipe with pp 1: each microbatch's backward follows its forward; 1f1b"
    if config.pp > 1 and config.schedule == "1f1b-deepspeed":
        yield "schedule 1f1b-deepspeed: torch exchanges both messages at once; 1f1b"


def _unsupported_shards(config: ParallelConfig) -> Iterator[str]:
    zero, one = config.zero_stage, max(config.num_microbatches) == 1
    if config.dp_cp == 1:
        return
    if zero == 0 and config.cp > 1:
        yield f"zero_stage 0 with cp {config.cp}: FSDP shards over the ranks of cp; --zero-stage 1"
    if zero and config.shards % config.cp:
        yield f"zero_shard_size {config.shards}: FSDP shards over all {config.cp} ranks of cp; a multiple of {config.cp}"
    if one:
        return
    if config.pp > 1 and zero >= 2:
        yield f"zero_stage {zero} with pp {config.pp}: a pipeline reduces whole gradients once a step; --zero-stage 1"
    if config.pp == 1 and zero < 3:
        yield f"zero_stage {zero} with pp 1: each microbatch gathers weights and reduces; --zero-stage 3, or one microbatch"
    if config.vpp > UNSHARDED and zero:
        yield f"vpp {config.vpp} with zero_stage {zero}: it keeps {UNSHARDED} stages of each rank gathered; at most {UNSHARDED}"


def launch(plan: Plan) -> Launch:
    """holmes_plan.py, the schedule as CSV if torch has no name for it, and torchrun's files."""
    entry = '-m torchtitan.train --module holmes_plan --config plan "$@"'
    how = torch_launch.HOW.format(words="--training.steps 1000").replace("where the training script is", "with the tokenizer")
    found = _config_files(plan) | torch_launch.files(plan, entry, setup=torch_launch.IMPORTABLE)
    return Launch(found, f"`pip install torchtitan==0.3.0` on all hosts. {how}", _assumed(plan))


def _config_files(plan: Plan) -> dict[str, File]:
    found = {MODULE: File(module(plan), "the config function, for torchtitan's --module and --config")}
    if torchtitan_schedule.has_timetable(plan.config):
        rows = torchtitan_schedule.timetable(plan.config)
        found[torchtitan_schedule.TIMETABLE] = File(rows, "the pipeline schedule, a row a place, as torch's runtime loads it")
    return found


def unsupported_islands(plan: IslandsPlan) -> Iterator[str]:
    """What torchft cannot express."""
    return torchft.unsupported(plan)


def islands_launch(plan: IslandsPlan) -> Launch:
    """A folder for each island, as replica group of torchft, and the lighthouse."""
    found = torchft.launch(plan, _config_files)
    more = (line for island in plan.islands for line in _assumed(island)[1:])
    return Launch(found.files, found.how, tuple(dict.fromkeys((*found.assumed, *more))))


def _assumed(plan: Plan) -> tuple[str, ...]:
    config, model = plan.config, plan.workload.model
    own = torchtitan_models.family(model)
    lines = [
        f"Tokenizer, data, optimizer, learning rate and steps are those of torchtitan's {own.base}; the tokenizer must fit the "
        f"vocabulary of {model.vocab}.",
        *model_facts.assumed(model, own.options, "torchtitan"),
    ]
    lines += (*torchtitan_models.assumed(plan), *torchtitan_schedule.assumed(config))
    if config.dp_cp > 1 and config.pp > 1:
        lines.append(
            "torch's pipelines reduce gradients after a stage's last backward; overlap_grad_reduce is "
            f"{str(config.overlap_grad_reduce).lower()} in the plan, whose step assumes it."
        )
    elif config.dp_cp > 1:
        lines.append("FSDP overlaps reduction and gathering regardless of overlap_grad_reduce and overlap_param_gather.")
    if config.cp > 1 and config.cp_algo == "ring":
        lines.append("Keys and values of cp ranks are gathered (FlexAttention), not sent around a ring.")
    if config.recompute == "selective":
        lines.append("recompute selective is written as none: fused attention recomputes its scores by itself.")
    lines += torchtitan_precision.assumed(plan)
    if plan.workload.adapter is not None:
        lines.append(
            "Adapters have alpha twice r, and are stored like the frozen weights; the plan counts fp32 weights and moments for "
            "them. Frozen weights must come from a checkpoint (checkpoint.initial_load_path)."
        )
    return tuple(lines)
