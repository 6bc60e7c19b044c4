"""A plan as overrides of a Megatron-Bridge recipe: `key=value` words for scripts/training/run_recipe.py.

Keys are fields of ConfigContainer (NVIDIA-NeMo/Megatron-Bridge at 067f987, 2026-08-22: src/megatron/bridge/training/config.py,
models/gpt_provider.py, training/mixed_precision.py). Settings of a recipe that would split its stages differently are set to
null. The recipe's comm_overlap is null too, because it would override the overlap settings of ddp (training/comm_overlap.py).
So the overlap of tensor parallelism is asked of the model itself, which training/initialize.py reads, with the default user
buffers of Transformer Engine: those of a recipe are for the recipe's degrees.
"""

from __future__ import annotations

from typing import TypeAlias

from holmes_sim.launching import adapters, context, grouped_experts, megatron_flags, megatron_fsdp, megatron_precision
from sim.kernels import tensor_overlap
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.workload.workload import Workload

Value: TypeAlias = str | int | float | bool | None

PRECISIONS = {
    ("bf16", "fp32"): "bf16_mixed",
    ("fp16", "fp16"): "fp16_mixed",
    ("fp8", "fp32"): "bf16_with_fp8_delayed_scaling_mixed",
    ("mxfp8", "fp32"): "bf16_with_mxfp8_mixed",
    ("nvfp4", "fp32"): "bf16_with_nvfp4_mixed",
    ("fp32", "fp32"): None,
}
"""(precision, gradient precision) -> the mixed-precision recipe with both."""
OF_SHARDS = {("bf16", "bf16"): "bf16_mixed", ("fp8", "bf16"): PRECISIONS["fp8", "fp32"]} | {
    (precision, precision): PRECISIONS[precision, precision] for precision in ("fp16", "fp32")
}
"""The same under Megatron-FSDP, where gradients have the precision of weights: an override to another one would be a text,
where its settings want a type (training/utils/omegaconf_utils.py, line 499)."""
CURRENT_SCALING = "bf16_with_fp8_current_scaling_mixed"
"""The recipe of fp8 in which each tensor has the scale of its own largest value, with gradients in fp32."""


def missing(plan: Plan) -> str | None:
    """Why a plan that Megatron-LM supports has no overrides; None if it has some."""
    return without_overrides(plan.config, plan.workload)


def without_overrides(config: ParallelConfig, workload: Workload) -> str | None:
    """Why a layout that Megatron-LM supports has no overrides; None if it has some."""
    key, model = (workload.precision, config.gradient_precision), workload.model
    if model.special:
        return (
            f"no overrides of Megatron-Bridge are written for {', '.join(model.special)} of {model.name}: its recipe has them."
        )
    if workload.optimizer != "adam":
        return f"no overrides of Megatron-Bridge are written for optimizer {workload.optimizer}: its recipe has Adam."
    if config.offloads_optimizer:
        return "no overrides of Megatron-Bridge are written for offload optimizer: its recipe keeps the state on devices."
    if key in _mixed_precisions(config):
        return None
    return f"no mixed precision of Megatron-Bridge has precision {key[0]} with gradients in {key[1]}: no overrides for it."


def _mixed_precisions(config: ParallelConfig) -> dict[tuple[str, str], str | None]:
    return OF_SHARDS if megatron_fsdp.is_used(config) else PRECISIONS


def _context(config: ParallelConfig) -> dict[str, Value]:
    """How cp ranks share attention, where that is not by a ring of all."""
    if config.cp == 1 or config.cp_algo == "ring":
        return {}
    found: dict[str, Value] = {"model.cp_comm_type": context.COMM_TYPES[config.cp_algo]}
    if levels := context.levels(config):
        sizes = ",".join(map(str, levels))
        found |= {"model.hierarchical_context_parallel_sizes": f"[{sizes}]", "dist.use_decentralized_pg": False}
    return found


def overrides(plan: Plan) -> str:
    """The overrides, one per line. The recipe keeps its activation, norms, biases, positions, data and optimizer."""
    config, workload = plan.config, plan.workload
    found: dict[str, Value] = {
        "model.tensor_model_parallel_size": config.tp,
        "model.sequence_parallel": config.sequence_parallel and config.tp > 1,
        "model.context_parallel_size": config.cp,
        **_context(config),
        "model.pipeline_model_parallel_size": config.pp,
        "model.virtual_pipeline_model_parallel_size": config.vpp if config.vpp > 1 else None,
        "model.pipeline_model_parallel_layout": megatron_flags.layout(plan) if config.pp > 1 else None,
        "model.num_layers_in_first_pipeline_stage": None,
        "model.num_layers_in_last_pipeline_stage": None,
        "model.account_for_embedding_in_pipeline_split": False,
        "model.account_for_loss_in_pipeline_split": False,
        "model.tp_comm_overlap": tensor_overlap.is_whole(plan.config),
    }
    if tensor_overlap.is_whole(plan.config):
        found["model.tp_comm_overlap_cfg"] = None
    found |= _model(plan)
    found |= {
        "model.recompute_granularity": None, "model.recompute_method": None, "model.recompute_num_layers": None,
    } | {f"model.{_field(name)}": value for name, value in megatron_flags.recomputation(plan).items()}  # fmt: skip
    if "model.recompute_modules" in found:
        found["model.recompute_modules"] = f"[{','.join(config.modules)}]"
    if config.offloads_activations:
        found |= {"model.cpu_offloading": True, "model.cpu_offloading_weights": False}
    found |= {
        "dataset.seq_length": workload.seq_len,
        "train.micro_batch_size": config.microbatch_size,
        "train.global_batch_size": workload.global_batch_size,
        "mixed_precision": _mixed_precision(plan),
        "comm_overlap": None,
        "ddp.use_distributed_optimizer": config.zero_stage > 0,
        "optimizer.use_distributed_optimizer": config.zero_stage > 0,
        "ddp.num_distributed_optimizer_instances": config.dp_cp // config.shards,
        "ddp.overlap_grad_reduce": config.reduces_behind,
        "ddp.overlap_param_gather": config.gathers_ahead,
        "optimizer.overlap_param_gather": config.gathers_ahead,
        **megatron_fsdp.overrides(config, workload),
    }
    if workload.adapter is not None:
        names = ",".join(adapters.modules(workload, adapters.MEGATRON))
        found |= {"peft.dim": workload.adapter.r, "peft.target_modules": f"[{names}]", "peft.dropout": 0.0}
    return "".join(f"{key}={_word(value)}\n" for key, value in found.items())


def _mixed_precision(plan: Plan) -> str | None:
    if megatron_precision.scales_by_current_values(plan):
        return CURRENT_SCALING
    return _mixed_precisions(plan.config)[plan.workload.precision, plan.config.gradient_precision]


def _model(plan: Plan) -> dict[str, Value]:
    config, model = plan.config, plan.workload.model
    found: dict[str, Value] = {
        "model.num_layers": model.layers,
        "model.hidden_size": model.hidden,
        "model.ffn_hidden_size": model.ffn_hidden,
        "model.num_attention_heads": model.heads,
        "model.num_query_groups": model.kv_heads,
        "model.kv_channels": model.head_dim,
        "model.vocab_size": model.vocab,
        "model.should_pad_vocab": False,
        "model.share_embeddings_and_output_weights": model.tied_embeddings,
    }
    if model.experts:
        found |= {
            "model.expert_model_parallel_size": config.ep,
            "model.expert_tensor_parallel_size": config.expert_tp,
            "model.num_moe_experts": model.experts,
            "model.moe_router_topk": model.experts_per_token,
            "model.moe_ffn_hidden_size": model.ffn_hidden,
            "model.moe_shared_expert_intermediate_size": model.shared_ffn_hidden or None,
            "model.moe_grouped_gemm": grouped_experts.multiplies_together(plan.workload),
        }
        flags = megatron_flags.dispatcher(config) | megatron_flags.capacity(config)
        found |= {f"model.{_field(flag)}": value for flag, value in flags.items()}
    return found


def _field(flag: str) -> str:
    return flag.replace("-", "_")


def _word(value: object) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
