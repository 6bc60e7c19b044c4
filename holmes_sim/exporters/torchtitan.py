"""torchtitan: a config function for a plan, launched by torchrun.

Names and rules are those of torchtitan 0.3.0 (config/configs.py, distributed/parallel_dims.py, pipeline_parallel.py, fsdp.py,
models/llama3, models/common/decoder.py) on torch 2.14 (distributed/pipelining/schedules.py, stage.py):

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
- Stages are lists of module names; unknown names are dropped (`_split_module`). The generated module uses private names of
  torchtitan.models.llama3 (`_build_llama3_layers`, `_output_linear_init`, `_NORM_INIT`, `_EMBEDDING_INIT`,
  `_EMBEDDING_SKIP_INIT`): tests/peers/torchtitan.py checks them against the release.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator

from holmes_sim.launching import context, environment, head, model_facts, model_keys, replicas, torch_launch, unlike_stages
from holmes_sim.launching.folder import File, Launch
from holmes_sim.launching.torchtitan_options import LLAMA3, LONGEST, rope
from planner.target import Vendors
from sim.formats import planfile
from sim.plan import schedules
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.workload.workload import Workload

TITLE = "torchtitan 0.3.0"
READERS = "torchtitan 0.3.0 on torch 2.14"
ORDER = 40
KIND = "framework"
VENDORS: Vendors = "one"
EXCLUDED_VENDORS: tuple[str, ...] = ("huawei",)
MODULE, TIMETABLE = "holmes_plan.py", "schedule.csv"
SCHEDULES = {"1f1b": "1F1B", "gpipe": "GPipe", "interleaved": "Interleaved1F1B"}
"""Our schedule -> torch's name (get_schedule_class)."""
MASK_BLOCK = 128
"""Tokens per block of FlexAttention's mask, which cp cannot split (torch, _context_parallel/_attention.py)."""
UNSHARDED = 3
"""Number of stages per pipeline rank that torch's runtime keeps gathered (_add_unshard_reshard, max_active_stages)."""
TIMEOUT = 100.0
"""Seconds after which torchtitan aborts a collective (config/configs.py, train_timeout_seconds)."""
TEMPLATE = '''\
"""{name} on {topology} for torchtitan 0.3.0: plan {digest}, written by holmes-sim.

    torchrun ... -m torchtitan.train --module holmes_plan --config plan

Data, tokenizer, optimizer and number of steps are those of llama3_8b: change them here, or by --training.steps and the like.
"""

from dataclasses import replace
{imports}
from torchtitan.models import llama3
from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm
from torchtitan.models.llama3.config_registry import llama3_8b
from torchtitan.trainer import Trainer


def model() -> llama3.Llama3Model.Config:
    """The shape of {name}; RoPE and initial weights as Llama 3 has them."""
    dim, vocab = {hidden}, {vocab}
    return llama3.Llama3Model.Config(
        dim=dim,
        vocab_size=vocab,
        enable_weight_tying={tied},
        tok_embeddings=Embedding.Config(num_embeddings=vocab, embedding_dim=dim, param_init=llama3.{embedding}),
        norm=RMSNorm.Config(normalized_shape=dim, param_init=llama3._NORM_INIT),
        lm_head=Linear.Config(in_features=dim, out_features=vocab, param_init=llama3._output_linear_init(dim)),
        layers=llama3._build_llama3_layers(
            n_layers={layers},
            dim=dim,
            n_heads={heads},
            n_kv_heads={kv_heads},
            hidden_dim={ffn_hidden},
            rope=ComplexRoPE.Config(dim={head_dim}, max_seq_len=131072, {rope}),
            attn_backend="flex",
        ),
    )

{parts}
def plan() -> Trainer.Config:
    config = llama3_8b()
{settings}
    return config
'''
PARTS = '''
def parts() -> list[list[str]]:
    """Modules of every stage in pipeline order (stage i is on place i % {pp}); torchtitan drops names that it knows not."""
    stages = {stages}  # layers [first, past last)
    found = [[f"layers.{{layer}}" for layer in range(first, past_last)] for first, past_last in stages]
    found[0].insert(0, "tok_embeddings")
    found[-1] += ["norm", "lm_head"]
    return found

'''


def unsupported_layout(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """Layouts that torchtitan's llama3 cannot express, or executes differently."""
    yield from (*_unsupported_model(config, workload), *replicas.unequal(config), *unlike_stages.unlike_tp(config))
    if config.recompute_layers:
        yield "recompute_layers: its FullAC is for all layers; none, to recompute all layers"
    if config.modules:
        yield "recompute selective: its SelectiveAC keeps matrix products and recomputes the rest; none or full"
    if config.gradient_precision != "fp32":
        yield f"gradient_precision {config.gradient_precision}: gradients are reduced as fp32 (mixed_precision_reduce); fp32"
    if config.ep > 1:
        yield f"ep {config.ep}: llama3 has no experts; ep 1"
    if workload.model.kv_heads % config.tp:
        yield f"tp {config.tp}: it must divide kv_heads {workload.model.kv_heads}; a divisor of it"
    yield from (*model_keys.special(workload), *context.ulysses(config, "it gathers keys and values"))
    yield from (*_unsupported_sequence(config, workload.seq_len), *_unsupported_pipeline(config), *_unsupported_shards(config))


def unsupported_placement(plan: Plan) -> Iterator[str]:
    """Devices of several vendors, or of one that torchtitan does not run on."""
    yield from (*environment.unsupported(plan), *head.unsupported(plan))
    vendors = sorted({plan.fleet.spec(device).vendor for device in plan.placement})
    if len(vendors) > 1:
        yield f"vendors {', '.join(vendors)}: it has one device backend for all ranks; a plan on devices of one vendor"
    elif vendors == ["huawei"]:
        yield "vendor huawei: it runs on CUDA and ROCm devices; a plan on devices of nvidia or amd"


def _unsupported_model(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    model = workload.model
    if model.mlp != "swiglu":
        yield f"mlp {model.mlp}: its models for text are gated; swiglu"
    if model.learned_positions:
        yield f"learned_positions {model.learned_positions}: llama3 has rotary positions only; 0"
    if model.experts:
        yield f"experts {model.experts}: llama3 is dense; 0"
    if model.head_dim * model.heads != model.hidden:
        yield f"head_dim {model.head_dim}: llama3 takes hidden / heads; {model.hidden / model.heads:g}"
    if model.tied_embeddings and config.pp > 1:
        yield f"tied_embeddings with pp {config.pp}: it does not tie weights across stages; pp 1"
    if workload.precision not in ("bf16", "fp32"):
        yield f"precision {workload.precision}: mixed_precision_param supports bfloat16 and float32; bf16 or fp32"
    if config.attention != "flash":
        yield f"attention {config.attention}: it has fused attention only (flex, varlen); flash"


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
    found = {MODULE: File(_module(plan), "the config function, for torchtitan's --module and --config")}
    if _has_timetable(plan.config):
        found[TIMETABLE] = File(timetable(plan.config), "the pipeline schedule, a row a place, as torch's runtime loads it")
    how = torch_launch.HOW.format(words="--training.steps 1000").replace("where the training script is", "with the tokenizer")
    return Launch(
        found | torch_launch.files(plan, entry), f"`pip install torchtitan==0.3.0` on all hosts. {how}", _assumed(plan)
    )


def _assumed(plan: Plan) -> tuple[str, ...]:
    config = plan.config
    lines = [
        "Tokenizer, data, optimizer, learning rate and steps are those of torchtitan's llama3_8b; the tokenizer must fit the "
        f"vocabulary of {plan.workload.model.vocab}.",
        *model_facts.assumed(plan.workload.model, LLAMA3, "torchtitan"),
    ]
    if config.dp_cp > 1 and config.pp > 1:
        lines.append(
            "torch's pipelines reduce gradients after a stage's last backward; overlap_grad_reduce is "
            f"{str(config.overlap_grad_reduce).lower()} in the plan, whose step assumes it."
        )
    elif config.dp_cp > 1:
        lines.append("FSDP overlaps reduction and gathering regardless of overlap_grad_reduce and overlap_param_gather.")
    if config.cp > 1:
        lines.append("Keys and values of cp ranks are gathered (FlexAttention), not sent around a ring.")
    if config.recompute == "selective":
        lines.append("recompute selective is written as none: fused attention recomputes its scores by itself.")
    return tuple(lines)


def _has_timetable(config: ParallelConfig) -> bool:
    """Whether torch does not have the schedule by name."""
    microbatches = config.num_microbatches[0]
    if config.pp == 1:
        return False
    if config.schedule == "1f1b":
        return microbatches < config.pp
    return config.schedule not in SCHEDULES or (config.schedule == "interleaved" and microbatches == config.pp)


def timetable(config: ParallelConfig) -> str:
    """The schedule in torch's notation: `0F3` is the forward of stage 0 for microbatch 3; one row per pipeline rank."""
    split = schedules.get(config.schedule).SPLITS_BACKWARD
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for pp_rank in range(config.pp):
        program = schedules.actions(config.schedule, pp_rank, config.pp, config.num_microbatches[0], config.vpp)
        writer.writerow(f"{a.stage}{'I' if split and a.kind == 'B' else a.kind}{a.microbatch}" for a in program)
    return text.getvalue()


def _module(plan: Plan) -> str:
    config, model = plan.config, plan.workload.model
    imports = "from pathlib import Path\n" if _has_timetable(config) else ""
    if config.recompute == "full":
        imports += "\nfrom torchtitan.distributed.activation_checkpoint import FullAC"
    stages = ", ".join(f"({stage.first}, {stage.past_last})" for stage in plan.stages)
    name, topology = (re.sub(r'["\\]', "", text) for text in (model.name, plan.topology.name))
    return TEMPLATE.format(
        name=name, topology=topology, digest=planfile.digest(plan), imports=imports,
        hidden=model.hidden, vocab=model.vocab, tied=model.tied_embeddings, layers=model.layers, heads=model.heads,
        rope=rope(model), kv_heads=model.kv_heads, ffn_hidden=model.ffn_hidden, head_dim=model.head_dim,
        embedding="_EMBEDDING_SKIP_INIT" if model.tied_embeddings else "_EMBEDDING_INIT",
        parts=PARTS.format(pp=config.pp, stages=f"[{stages}]") if config.pp > 1 else "",
        settings="\n".join(f"    {line}".rstrip() for line in _settings(plan)),
    )  # fmt: skip


def _settings(plan: Plan) -> Iterator[str]:
    """Statements of the config function."""
    config, workload = plan.config, plan.workload
    microbatches = config.num_microbatches[0]
    yield f"config.model_spec = replace(config.model_spec, flavor={json.dumps(workload.model.name)}, model=model())"
    yield f"config.loss.loss_fn.global_vocab_size = {workload.model.vocab}"
    yield f"config.activation_checkpoint = {'FullAC.Config()' if config.recompute == 'full' else 'None'}"
    yield ""
    yield "training = config.training"
    yield f"training.seq_len = {workload.seq_len}"
    if config.pp > 1:
        yield f"training.local_batch_size = {config.microbatch_size * microbatches}  # of {microbatches} microbatches"
        yield "training.disable_cuda_graphs = True  # torchtitan wants it of a pipeline"
    else:
        yield f"training.local_batch_size = {config.microbatch_size}"
    yield f"training.global_batch_size = {workload.global_batch_size}"
    yield f'training.mixed_precision_param = "{ {"bf16": "bfloat16", "fp32": "float32"}[workload.precision] }"'
    yield ""
    shard = config.shards // config.cp if config.zero_stage else 1
    yield "parallelism = config.parallelism"
    yield 'parallelism.spmd_backend = "partial_dtensor"  # DTensors, as torch 2.13 and 2.14 shard them'
    yield f"parallelism.data_parallel_replicate_degree = {config.dp // shard}"
    yield f"parallelism.data_parallel_shard_degree = {shard}"
    yield f'parallelism.fsdp_reshard_after_forward = "{"always" if config.zero_stage == 3 else "never"}"'
    yield f"parallelism.context_parallel_degree = {config.cp}"
    yield f"parallelism.tensor_parallel_degree = {config.tp}"
    yield f"parallelism.enable_sequence_parallel = {config.sequence_parallel}"
    yield f"parallelism.pipeline_parallel_degree = {config.pp}"
    if config.pp > 1:
        yield "parallelism.module_fqns_per_model_part = parts()"
        yield f"parallelism.pipeline_parallel_microbatch_size = {config.microbatch_size}"
        if _has_timetable(config):
            yield 'parallelism.pipeline_parallel_schedule = "PipelineScheduleMulti"'
            yield f'parallelism.pipeline_parallel_schedule_csv = str(Path(__file__).with_name("{TIMETABLE}"))'
        else:
            yield f'parallelism.pipeline_parallel_schedule = "{SCHEDULES[config.schedule]}"'
    if plan.prediction and 2 * plan.prediction.step_s > TIMEOUT:
        yield ""
        yield f"config.comm.train_timeout_seconds = {round(10 * plan.prediction.step_s)}  # ten steps as promised"
