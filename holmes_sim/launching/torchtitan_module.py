"""The config function of a plan for torchtitan 0.3.0, as the text of a Python module.

Its names are those of torchtitan.models.llama3 and config/configs.py; `holmes_sim.exporters.torchtitan` says the rules."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from holmes_sim.launching import adapters
from holmes_sim.launching.torchtitan_options import rope
from holmes_sim.launching.torchtitan_schedule import SCHEDULES, TIMETABLE, has_timetable
from sim.formats import planfile
from sim.plan.plan import Plan
from sim.workload.workload import Workload

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
    {gives} llama3.Llama3Model.Config(
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
            attn_backend="flex",{fused}
        ),
    ){converted}

{parts}
def plan() -> Trainer.Config:
    config = llama3_8b()
{settings}
    return config
'''
UNFUSED = """
            fuse_qkv=False,  # so that queries, keys and values have adapters of their own"""
CONVERTED = """
    converter = LoRAConverter.Config(rank={r}, alpha={alpha:.1f}, target_modules={modules})
    return converter.build().convert(shape)"""
PARTS = '''
def parts() -> list[list[str]]:
    """Modules of every stage in pipeline order (stage i is on place i % {pp}); torchtitan drops names that it knows not."""
    stages = {stages}  # layers [first, past last)
    found = [[f"layers.{{layer}}" for layer in range(first, past_last)] for first, past_last in stages]
    found[0].insert(0, "tok_embeddings")
    found[-1] += ["norm", "lm_head"]
    return found

'''


def module(plan: Plan) -> str:
    """The text of holmes_plan.py."""
    config, model = plan.config, plan.workload.model
    imports, adapter = "from pathlib import Path\n" if has_timetable(config) else "", plan.workload.adapter
    if adapter is not None:
        imports += "\nfrom torchtitan.components.lora import LoRAConverter"
    if config.recompute == "full":
        imports += "\nfrom torchtitan.distributed.activation_checkpoint import FullAC"
    stages = ", ".join(f"({stage.first}, {stage.past_last})" for stage in plan.stages)
    name, topology = (re.sub(r'["\\]', "", text) for text in (model.name, plan.topology.name))
    return TEMPLATE.format(
        name=name, topology=topology, digest=planfile.digest(plan), imports=imports,
        hidden=model.hidden, vocab=model.vocab, tied=model.tied_embeddings, layers=model.layers, heads=model.heads,
        rope=rope(model), kv_heads=model.kv_heads, ffn_hidden=model.ffn_hidden, head_dim=model.head_dim,
        embedding="_EMBEDDING_SKIP_INIT" if model.tied_embeddings else "_EMBEDDING_INIT",
        fused=UNFUSED if adapter else "",
        gives="return" if adapter is None else "shape =",
        converted=CONVERTED.format(r=adapter.r, alpha=2 * adapter.r, modules=_names(plan.workload)) if adapter else "",
        parts=PARTS.format(pp=config.pp, stages=f"[{stages}]") if config.pp > 1 else "",
        settings="\n".join(f"    {line}".rstrip() for line in _settings(plan)),
    )  # fmt: skip


def _names(workload: Workload) -> str:
    return json.dumps(adapters.modules(workload, adapters.TORCHTITAN))


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
    if workload.adapter is not None and workload.precision == "bf16":
        yield 'training.dtype = "bfloat16"  # of the frozen weights; else they are stored as fp32'
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
        if has_timetable(config):
            yield 'parallelism.pipeline_parallel_schedule = "PipelineScheduleMulti"'
            yield f'parallelism.pipeline_parallel_schedule_csv = str(Path(__file__).with_name("{TIMETABLE}"))'
        else:
            yield f'parallelism.pipeline_parallel_schedule = "{SCHEDULES[config.schedule]}"'
    if plan.prediction and 2 * plan.prediction.step_s > TIMEOUT:
        yield ""
        yield f"config.comm.train_timeout_seconds = {round(10 * plan.prediction.step_s)}  # ten steps as promised"
