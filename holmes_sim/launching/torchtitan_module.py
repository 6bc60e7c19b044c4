"""The config function of a plan for torchtitan 0.3.0, as the text of a Python module.

Its names are those of torchtitan.models (`torchtitan_models`) and of config/configs.py; `holmes_sim.exporters.torchtitan` says
the rules."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from holmes_sim.launching import adapters, torchtitan_models, torchtitan_precision
from holmes_sim.launching.torchtitan_options import rope
from holmes_sim.launching.torchtitan_schedule import SCHEDULES, TIMETABLE, has_timetable
from sim.formats import planfile
from sim.plan import schedules
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.workload.workload import Workload

TIMEOUT = 100.0
"""Seconds after which torchtitan aborts a collective (config/configs.py, train_timeout_seconds)."""
TEMPLATE = '''\
"""{name} on {topology} for torchtitan 0.3.0: plan {digest}, written by holmes-sim.

    torchrun ... -m torchtitan.train --module holmes_plan --config plan

Data, tokenizer, optimizer and number of steps are those of {base}: change them here, or by --training.steps and the like.
"""

from dataclasses import replace
{imports}
from torchtitan.models import {family}
from torchtitan.models.common import {classes}{more}
from torchtitan.models.{family}.config_registry import {base}
from torchtitan.trainer import Trainer


def model() -> {family}.{model}.Config:
    """The shape of {name}; RoPE and initial weights as those of {base}."""
    dim, vocab = {hidden}, {vocab}
    {gives} {family}.{model}.Config(
        dim=dim,
        vocab_size=vocab,
        enable_weight_tying={tied},
{shape}    ){converted}

{parts}
def plan() -> Trainer.Config:
    config = {base}()
{settings}
    return config
'''
CONVERTED = """
    converter = LoRAConverter.Config(rank={r}, alpha={alpha:.1f}, target_modules={modules})
    return converter.build().convert(shape)"""
PARTS = '''
def parts() -> list[list[str]]:
    """Modules of every stage in pipeline order ({where}); torchtitan drops names that it knows not."""
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
    imports += torchtitan_precision.imports(plan)
    own = torchtitan_models.family(model)
    shape, after = torchtitan_models.text(config, plan.workload, rope(model, own.options))
    more = "\nfrom torchtitan.models.common.param_init import skip_param_init" if "skip_param_init" in shape else ""
    if model.mtp_layers:
        more += "\nfrom torchtitan.models.deepseek_v3 import MTPLoss"
    after += CONVERTED.format(r=adapter.r, alpha=2 * adapter.r, modules=_names(plan.workload)) if adapter else ""
    after += torchtitan_precision.converted(plan)
    if after and "return" not in after:
        after += "\n    return shape"
    stages = ", ".join(f"({stage.first}, {stage.past_last})" for stage in plan.stages)
    name, topology = (re.sub(r'["\\]', "", text) for text in (model.name, plan.topology.name))
    return TEMPLATE.format(
        name=name, topology=topology, digest=planfile.digest(plan), imports=imports,
        family=own.name, classes=own.classes, more=more, base=own.base, model=own.config, hidden=model.hidden,
        vocab=model.vocab, tied=model.tied_embeddings, shape=shape, gives="shape =" if after else "return", converted=after,
        parts=PARTS.format(where=_where(config), stages=f"[{stages}]") if config.pp > 1 else "",
        settings="\n".join(f"    {line}".rstrip() for line in _settings(plan)),
    )  # fmt: skip


def _where(config: ParallelConfig) -> str:
    """On which place of the pipeline a stage is."""
    if not schedules.is_paired(config.schedule):
        return f"stage i is on place i % {config.pp}"
    return f"stages i and {config.num_stages - 1} - i are on place i, along a V"


def _names(workload: Workload) -> str:
    return json.dumps(adapters.modules(workload, adapters.TORCHTITAN))


def _settings(plan: Plan) -> Iterator[str]:
    """Statements of the config function."""
    config, workload = plan.config, plan.workload
    microbatches = config.num_microbatches[0]
    yield f"config.model_spec = replace(config.model_spec, flavor={json.dumps(workload.model.name)}, model=model())"
    if workload.model.mtp_layers:
        yield f"config.loss = MTPLoss.Config(global_vocab_size={workload.model.vocab})"
    else:
        yield f"config.loss.loss_fn.global_vocab_size = {workload.model.vocab}"
    yield f"config.activation_checkpoint = {'FullAC.Config()' if config.recompute == 'full' else 'None'}"
    yield from torchtitan_precision.settings(plan)
    yield ""
    yield "training = config.training"
    yield f"training.seq_len = {workload.seq_len}"
    if config.pp > 1:
        yield f"training.local_batch_size = {config.microbatch_size * microbatches}  # of {microbatches} microbatches"
        yield "training.disable_cuda_graphs = True  # torchtitan wants it of a pipeline"
    else:
        yield f"training.local_batch_size = {config.microbatch_size}"
        if config.ep > 1:
            yield "training.disable_cuda_graphs = True  # torchtitan wants it of experts over ranks"
    yield f"training.global_batch_size = {workload.global_batch_size}"
    if workload.adapter is not None and workload.precision == "bf16":
        yield 'training.dtype = "bfloat16"  # of the frozen weights; else they are stored as fp32'
    yield f'training.mixed_precision_param = "{torchtitan_precision.TYPES[workload.precision]}"'
    yield ""
    shard = config.shards // config.cp if config.zero_stage else 1
    yield "parallelism = config.parallelism"
    backend = torchtitan_precision.backend(plan)
    why = "  # DTensors, as torch 2.13 and 2.14 shard them" if backend == "partial_dtensor" else ""
    yield f'parallelism.spmd_backend = "{backend}"{why}'
    yield f"parallelism.data_parallel_replicate_degree = {config.dp // shard}"
    yield f"parallelism.data_parallel_shard_degree = {shard}"
    yield f'parallelism.fsdp_reshard_after_forward = "{"always" if config.zero_stage == 3 else "never"}"'
    yield f"parallelism.context_parallel_degree = {config.cp}"
    yield f"parallelism.tensor_parallel_degree = {config.tp}"
    if workload.model.experts or workload.model.attention == "mla":
        yield f"parallelism.expert_parallel_degree = {config.ep}"
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
