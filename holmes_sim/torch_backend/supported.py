"""Checks whether this backend can execute a plan."""

from __future__ import annotations

from collections.abc import Iterator

from sim import compression
from sim.compression import int4, int8
from sim.errors import NotSupported
from sim.kernels import tensor_overlap
from sim.plan import schedules
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.workload.workload import Workload

DISCARDED = ("layernorm", "moe_act")
"""Modules whose results are discarded: by torch's hooks for saved tensors, as are copies of activations to hosts."""
MESSAGES = (compression.NONE, int8.NAME, int4.NAME)
"""Compressions of messages that are executed. The code of top-k (`compressors`) sends fp32 values: more bytes than the
model has for values of 2 bytes."""


def check(plan: Plan | PipelinesPlan) -> None:
    """Raise NotSupported with all reasons why the backend cannot execute the plan as written, if there are any."""
    pipelines = plan.pipelines if isinstance(plan, PipelinesPlan) else (plan,)
    faults = list(dict.fromkeys(fault for one in pipelines for fault in unsupported(one)))
    if faults:
        raise NotSupported(f"the torch backend cannot execute this plan: {'; '.join(faults)}")


def unsupported(plan: Plan) -> Iterator[str]:
    """What the backend cannot execute of a plan, each with what it can in brackets."""
    config, model = plan.config, plan.workload.model
    yield from unsupported_workload(plan.workload)
    if plan.workload.adapter is not None:
        yield from _adapter(plan)
    if config.offloads_parameters:
        yield "offload parameters (optimizer)"
    if max((config.cp, *config.stage_cp)) > 1 and config.cp_algo not in ("ring", "all_gather"):
        yield f"cp_algo {config.cp_algo} (ring, all_gather)"
    if (ep := max((config.ep, *config.stage_ep))) > 1 and config.dispatcher != "alltoall":
        yield f"dispatcher {config.dispatcher} (tokens travel by all_to_all; plan with alltoall)"
    if ep > 1 and config.overlap_expert_communication:
        yield "overlap_expert_communication (one microbatch at a time; plan without it)"
    if ep > 1 and config.overlap_shared_experts:
        yield "overlap_shared_experts (shared experts compute before tokens travel; plan without it)"
    if model.experts and config.capacity_factor is not None:
        yield f"capacity_factor {config.capacity_factor:g} (no token is dropped; plan without it)"
    if config.own_tp_overlap and tensor_overlap.is_whole(config):
        yield "tp_overlap (collectives of tensor parallelism come before and after products; false)"
    if schedules.is_paired(config.schedule):
        yield f"schedule {config.schedule} (stages of a rank in one direction, one pass at a time; plan with another one)"
    if config.message_compression not in MESSAGES:
        yield f"message_compression {config.message_compression} ({', '.join(MESSAGES)})"
    if plan.head_stage != config.num_stages - 1:
        yield f"stages[{plan.head_stage}].head (the last stage has the head)"
    if passing := next(filter(plan.passes_on, range(plan.head_stage)), 0):
        yield f"stages[{passing}].layers (a layer on each stage between embedding and head)"
    if config.offloads_activations:
        yield from (f"{key} {module} with offload activations" for key, module in config.named_modules if module in DISCARDED)
    if model.kv_heads % config.tp:
        yield f"tp {config.tp} does not divide kv_heads {model.kv_heads}"
    cp = max((config.cp, *config.stage_cp))
    if config.tp > 1 and plan.workload.seq_len % (config.tp * cp):
        yield f"tp {config.tp}{f' x cp {cp}' * (cp > 1)} does not divide seq_len {plan.workload.seq_len}"


def unsupported_workload(workload: Workload) -> Iterator[str]:
    """What the backend cannot train of a model, in the same form."""
    model = workload.model
    if workload.optimizer != "adam":
        yield f"optimizer {workload.optimizer} (adam)"
    if model.special:
        yield f"model {model.name} has {', '.join(f'{key} {value}' for key, value in model.special.items())}"
    if workload.precision not in ("fp32", "tf32", "bf16", "fp16"):
        yield f"precision {workload.precision} (fp32, tf32, bf16, fp16)"


def _adapter(plan: Plan) -> Iterator[str]:
    """What the backend cannot execute of a plan with adapters."""
    adapter, config = plan.workload.adapter, plan.config
    if adapter is not None and adapter.base_precision and config.tp > 1:
        yield f"adapter.base_precision {adapter.base_precision} with tp {config.tp} (tp 1: ranks would cut blocks of codes)"
    if adapter is not None and adapter.base_precision and config.shards_parameters:
        yield f"adapter.base_precision {adapter.base_precision} with zero_stage 3 (codes are not sharded; --zero-stage 1)"
    if empty := [index for index, stage in enumerate(plan.stages) if not stage.layers]:
        yield f"adapter with stages[{empty[0]}] without layers (each stage has adapters)"
