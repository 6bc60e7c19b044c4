"""torchtitan's gpt_oss: sinks, windows of some layers, experts in all.

Read in torchtitan 0.3.0 (models/gpt_oss): its builder has 64 heads, 8 of keys and values, and windows of 128 in every second
layer, so that attention is built again for each layer. FlexAttention has two masks, one with the window, and is divided by cp.
Queries, keys, values, projection, router and experts have biases, and the activation is limited (swiglu_limit 7)."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.launching import torchtitan_family, torchtitan_options
from holmes_sim.launching.torchtitan_family import Family
from sim.plan.parallel_config import ParallelConfig
from sim.workload.model import Model
from sim.workload.workload import Workload

SHAPE = """\
        tok_embeddings=Embedding.Config(num_embeddings=vocab, embedding_dim=dim, param_init={embedding}),
        norm=RMSNorm.Config(normalized_shape=dim, param_init=gpt_oss._NORM_INIT),
        lm_head=Linear.Config(in_features=dim, out_features=vocab, param_init=gpt_oss._output_linear_init(dim)),
        layers=gpt_oss._build_gptoss_layers(
            dim=dim,
            n_layers={layers},
            hidden_dim={ffn_hidden}, num_experts={experts}, top_k={top_k}, load_balance_coeff=1e-3,
            attn_backend="flex",
            moe_comm_backend="{dispatcher}",
            rope=CosSinRoPE.Config(dim={head_dim}, max_seq_len=131072, {rope}),
        ),
"""
ATTENTION = """
    for at, layer in enumerate(shape.layers):
        layer.attention = gpt_oss._make_gptoss_attn_config(
            dim=dim, layer_id=at, attn_backend="flex", n_heads={heads}, n_kv_heads={kv_heads}, head_dim={head_dim},
            sliding_window_size={window}, rope=layer.attention.rope,
        )"""


def unsupported(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """Layers that gpt_oss does not have."""
    model = workload.model
    if not model.experts:
        yield "attention_sinks: its gpt_oss alone has them, and experts in all layers; a model with experts, or without sinks"
    if model.dense_layers or model.moe_layer_step > 1:
        yield "attention_sinks with dense layers: its gpt_oss has experts in all layers; dense_layers 0, moe_layer_step 1"
    if model.shared_ffn_hidden:
        yield f"shared_ffn_hidden {model.shared_ffn_hidden} with attention_sinks: its gpt_oss shares no experts; 0"
    if model.n_group > 1:
        yield f"n_group {model.n_group} with attention_sinks: its gpt_oss chooses from all experts; 1"
    if model.has_head_norms:
        yield "qk_norm with attention_sinks: its gpt_oss has no norms of queries and keys; false"
    if model.mtp_layers:
        yield (
            f"mtp_layers {model.mtp_layers} with attention_sinks: its deepseek_v3, which alone predicts further tokens, "
            "asserts that all layers have latent attention; 0"
        )
    if workload.precision in ("fp8", "mxfp8"):
        yield f"precision {workload.precision} with attention_sinks: gpt_oss was not tried so; bf16"


def assumed(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """What of gpt_oss the plan does not count."""
    yield (
        "gpt_oss has biases in attention, routers and experts, limits activations, and multiplies the result of attention by "
        "its sinks in a kernel of its own: the plan counts neither their parameters nor their time."
    )
    yield (
        "Experts are chosen by softmax, and the weights of the chosen ones add up to 1, with a bias that balances their load "
        "(load_balance_coeff 0.001), as in its gpt_oss."
    )


def _after(model: Model) -> str:
    window, where = str(model.sliding_window or None), torchtitan_family.has_window(model)
    if model.sliding_window and where != "True":
        window += f" if {where} else None"
    return ATTENTION.format(heads=model.heads, kv_heads=model.kv_heads, head_dim=model.head_dim, window=window)


GPT_OSS = Family(
    "gpt_oss", "GptOssModel", "gpt_oss_20b", torchtitan_options.GPT_OSS, "CosSinRoPE, Embedding, Linear, RMSNorm", SHAPE,
    _after, "gpt_oss._EMBEDDING_INIT", '{"weight": skip_param_init}', unsupported, assumed,
)  # fmt: skip
