"""torchtitan's deepseek_v3: latent attention, dense first layers, shared experts, groups of experts, further tokens.

Read in torchtitan 0.3.0 (models/deepseek_v3, models/common/moe.py, moe_sharding.py, distributed/activation_checkpoint.py,
compile.py); its kimi_k2_7 without a vision encoder is the same model, whose layers the same function builds:

- With q_lora_rank 0 queries come from one product. wq_a, wkv_a and their norms are whole on each tensor-parallel rank, which
  gathers the hidden state before them: each rank makes the latent vectors of all tokens. Without `whole_latents` in the stack
  the plan, as Megatron-LM, has each rank make those of its own slice.
- Routers have n_group groups of at least 2 experts, scored by the sum of the best two; the catalogue knows no score function:
  it is that of DeepSeek-V3 for models that a bias balances, otherwise that of DeepSeek-V2.
- mtp_layers follow the last layer and are copies of it. They take neither a pipeline nor cp, have MTPLoss, which computes whole
  logits, and neither activation checkpointing nor compilation reaches them."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.launching import torchtitan_family, torchtitan_options
from holmes_sim.launching.torchtitan_family import Family
from sim.kernels import tensor_overlap
from sim.plan.parallel_config import ParallelConfig
from sim.workload.model import Model
from sim.workload.routing import balanced_by_bias
from sim.workload.workload import Workload

LATENT = "qkv"
"""Name of the product down to the latent vectors (`sim.workload.kernels`)."""
FURTHER = """
    shape.mtp_layers = deepseek_v3._build_mtp_layers(shape.layers[-1], dim=dim, num_mtp_layers={further})"""
SHAPE = """\
        tok_embeddings=Embedding.Config(num_embeddings=vocab, embedding_dim=dim, param_init={embedding}),
        norm=RMSNorm.Config(normalized_shape=dim, param_init=deepseek_v3._NORM_INIT),
        lm_head=Linear.Config(in_features=dim, out_features=vocab, param_init=deepseek_v3._output_linear_init(dim)),
        layers=deepseek_v3._build_dsv3_layers(
            n_layers={layers},
            n_dense_layers={dense_layers},
            dim=dim,
            n_heads={heads},
            q_lora_rank={q_lora_rank},
            kv_lora_rank={kv_lora_rank},
            qk_nope_head_dim={qk_nope_head_dim},
            qk_rope_head_dim={qk_rope_head_dim},
            v_head_dim={v_head_dim},
            mscale=%s,
            dense_hidden_dim={dense_ffn_hidden},
            moe_hidden_dim={ffn_hidden}, num_experts={experts}, num_shared_experts={shared},
            {router}
            attn_backend="flex",
            moe_comm_backend="{dispatcher}",
            non_blocking_capacity_factor=None,
            rope=ComplexRoPE.Config(dim={qk_rope_head_dim}, max_seq_len=131072, {rope}),
        ),
"""


def router(model: Model) -> tuple[str, bool, float]:
    """(score function, whether the weights of the chosen experts add up to 1, what they are multiplied by) of a router."""
    return ("sigmoid", True, 2.5) if balanced_by_bias(model) else ("softmax", False, 16.0 if model.n_group > 1 else 1.0)


def router_text(model: Model) -> str:
    """The arguments of routers, as Python text."""
    score, norm, scale = router(model)
    groups = (model.n_group, model.topk_group) if model.n_group > 1 else (None, None)
    return (
        f'router_top_k={model.experts_per_token}, router_score_func="{score}", router_route_norm={norm}, '
        f"router_route_scale={scale},\n            "
        f"router_num_expert_groups={groups[0]}, router_num_limited_groups={groups[1]},"
    )


def unsupported(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """Windows, sinks and layouts that deepseek_v3 does not take."""
    model = workload.model
    if model.sliding_window:
        yield f"sliding_window {model.sliding_window} with attention mla: its deepseek_v3 attends to all tokens; 0"
    if model.attention_sinks:
        yield "attention_sinks with attention mla: its gpt_oss alone has sinks; false"
    if tensor_overlap.is_whole(config):
        yield "tp_overlap with attention mla: its gathers before whole weights were not tried; a stack without it"
    if not model.mtp_layers:
        return
    further = f"mtp_layers {model.mtp_layers}"
    if config.pp > 1:
        yield f"{further} with pp {config.pp}: it predicts further tokens without a pipeline only; pp 1, or mtp_layers 0"
    if config.cp > 1:
        yield f"{further} with cp {config.cp}: it predicts further tokens without context parallelism only; cp 1"
    if config.recompute == "full":
        yield f"{further} with recompute full: its FullAC does not reach layers that predict further tokens; none"


def assumed(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """Values of routers, and what of the layers differs from the plan's step."""
    model = workload.model
    if model.experts:
        score, norm, scale = router(model)
        like = "671B" if score == "sigmoid" else "236B" if model.n_group > 1 else "16B"
        yield (
            f"Experts are chosen by {score}, their weights {'add up to 1' if norm else 'are as scored'}, times {scale:g}, with "
            f"a bias that balances their load (load_balance_coeff 0.001), as in its {like}: set your model's in model()."
        )
    if config.tp > 1 and config.sequence_parallel and not config.whole_latents:
        yield (
            f"Each tensor-parallel rank makes the latent vectors of all tokens, the plan's step counts 1/{config.tp} of them: "
            f"{_again(config, workload):.1%} more FLOPs in the products of layers. A stack with whole_latents counts them."
        )
    if model.mtp_layers:
        yield "MTPLoss has whole logits of each prediction, and weighs further tokens by 0.3 (mtp_scale)."
        if workload.precision in ("fp8", "mxfp8"):
            yield "Layers that predict further tokens are not compiled: their casts are kernels of their own."


def _again(config: ParallelConfig, workload: Workload) -> float:
    """Products of latent vectors that a rank makes beyond the plan, as a share of all products of layers that are planned."""
    found = torchtitan_family.products(config, workload)
    return found[LATENT] * (config.tp - 1) / found.total()


def shared(model: Model) -> int:
    """num_shared_experts: the total width in those of routed experts, where that is a whole number."""
    return model.shared_ffn_hidden // model.ffn_hidden if model.shared_ffn_hidden % model.ffn_hidden == 0 else 0


def _after(model: Model) -> str:
    found = torchtitan_family.dense_layers(model, 0, "deepseek_v3")
    if model.experts and not shared(model):
        found += torchtitan_family.shared_experts(model.shared_ffn_hidden, "deepseek_v3")
    return found + (FURTHER.format(further=model.mtp_layers) if model.mtp_layers else "")


def _family(base: str, mscale: float) -> Family:
    return Family(
        "deepseek_v3", "DeepSeekV3Model", base, torchtitan_options.DEEPSEEK, "ComplexRoPE, Embedding, Linear, RMSNorm",
        SHAPE % mscale, _after, "deepseek_v3._EMBEDDING_INIT", '{"weight": skip_param_init}', unsupported, assumed,
    )  # fmt: skip


ONE_PRODUCT, LATENT_QUERIES = _family("deepseek_v3_16b", 0.7), _family("deepseek_v3_671b", 1.0)
"""Models whose queries come from one product, and from latent vectors; mscale of YaRN as in torchtitan's own."""
