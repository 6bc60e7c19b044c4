"""Models of torchtitan 0.3.0 that take the shape of a plan, one file a family.

`torchtitan_grouped` has llama3 and qwen3, `torchtitan_deepseek` latent attention, `torchtitan_gpt_oss` sinks;
`torchtitan_experts` says what all of them do with experts. Private names of torchtitan are used; tests/peers/torchtitan.py
checks them against the release. kimi_k2_7 without its vision encoder is deepseek_v3; there is no llama4; qwen3_5 (linear
attention) and muse_glimmer (scales and gates of its own) have layers that no model here has."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.launching import torchtitan_deepseek, torchtitan_experts, torchtitan_gpt_oss, torchtitan_grouped
from holmes_sim.launching.torchtitan_family import Family
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.workload.model import Model
from sim.workload.workload import Workload

UNFUSED = """
            fuse_qkv=False,  # so that queries, keys and values have adapters of their own"""


def family(model: Model) -> Family:
    """The model of torchtitan that has the layers of a model."""
    if model.attention == "mla":
        return torchtitan_deepseek.LATENT_QUERIES if model.q_lora_rank else torchtitan_deepseek.ONE_PRODUCT
    if model.attention_sinks:
        return torchtitan_gpt_oss.GPT_OSS
    if model.experts:
        return torchtitan_grouped.QWEN3_EXPERTS
    other = model.launch.qk_norm or model.head_dim * model.heads != model.hidden
    return torchtitan_grouped.QWEN3 if other else torchtitan_grouped.LLAMA3


def unsupported(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """Shapes, and degrees of experts, that no model of torchtitan takes."""
    model = workload.model
    if model.mlp != "swiglu":
        yield f"mlp {model.mlp}: its models for text are gated; swiglu"
    if model.learned_positions:
        yield f"learned_positions {model.learned_positions}: its models have rotary positions only; 0"
    if model.tied_embeddings and config.pp > 1:
        yield f"tied_embeddings with pp {config.pp}: it does not tie weights across stages; pp 1"
    if model.v_head_dim != model.head_dim and model.attention == "standard":
        yield f"v_head_dim {model.v_head_dim} unlike head_dim {model.head_dim}: its deepseek_v3 alone has it; {model.head_dim}"
    yield from family(model).unsupported(config, workload)
    yield from torchtitan_experts.unsupported(config, workload)


def assumed(plan: Plan) -> Iterator[str]:
    """What of the layers differs from the plan's step."""
    yield from family(plan.workload.model).assumed(plan.config, plan.workload)
    yield from torchtitan_experts.assumed(plan)


def text(config: ParallelConfig, workload: Workload, rope: str) -> tuple[str, str]:
    """The keyword arguments of a shape as Python text, and statements after it (which begin with a line break)."""
    model, own = workload.model, family(workload.model)
    dense = model.dense_layers if model.experts else model.layers
    shape = own.shape.format(
        layers=model.layers, heads=model.heads, kv_heads=model.kv_heads, head_dim=model.head_dim, ffn_hidden=model.ffn_hidden,
        experts=model.experts, top_k=model.experts_per_token, rope=rope, dense_layers=dense,
        dense_ffn_hidden=model.dense_ffn_hidden if model.experts else model.ffn_hidden,
        embedding=own.tied if model.tied_embeddings else own.untied, fused=UNFUSED if workload.adapter else "",
        backend="varlen" if model.sliding_window else "flex", dispatcher=torchtitan_experts.backend(config),
        q_lora_rank=model.q_lora_rank, kv_lora_rank=model.kv_lora_rank, qk_nope_head_dim=model.qk_nope_head_dim,
        qk_rope_head_dim=model.qk_rope_head_dim, v_head_dim=model.v_head_dim,
        router=torchtitan_deepseek.router_text(model), shared=max(torchtitan_deepseek.shared(model), 1),
    )  # fmt: skip
    return shape, own.after(model)
