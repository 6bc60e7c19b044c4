"""torchtitan's llama3 and qwen3: layers with grouped queries, dense or with experts, with or without windows.

Read in torchtitan 0.3.0 (models/llama3, models/qwen3, models/common/attention.py, distributed/context_parallel/api.py):

- llama3 takes hidden / heads as head_dim; qwen3 takes any. Norms of qwen3 have 1e-6. Neither has biases of queries, keys and
  values.
- A layer of qwen3 is dense, or has experts, and shared ones where its configuration says so. Its builder makes all alike and
  shares none: statements after it change layers.
- Experts of qwen3 are chosen by softmax, and the weights of the chosen ones add up to 1.
- FlexAttention takes one mask for all layers. VarlenAttention has a window of its own in each layer, multiplies in bf16, and is
  not divided by cp."""

from __future__ import annotations

from collections.abc import Iterator

from holmes_sim.launching import torchtitan_family, torchtitan_options
from holmes_sim.launching.torchtitan_family import Family
from sim.plan.parallel_config import ParallelConfig
from sim.workload.model import Model
from sim.workload.workload import Workload

WITHOUT_NORMS = """
    for layer in shape.layers:
        layer.attention.qk_norm = None"""
"""Queries and keys of qwen3 as they are."""
WINDOWS = """
    for at, layer in enumerate(shape.layers):
        if {condition}:
            layer.attention.inner_attention = replace(layer.attention.inner_attention, window_size=({left}, 0))"""
GROUPS = """
    for layer in shape.layers:
        if layer.moe is not None:
            layer.moe.router.num_expert_groups = {groups}
            layer.moe.router.num_limited_groups = {limited}"""


def unsupported(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """Windows beside what VarlenAttention is not, and layers that only other models of torchtitan have."""
    model = workload.model
    if model.mtp_layers:
        yield (
            f"mtp_layers {model.mtp_layers} with attention standard: its deepseek_v3, which alone predicts further tokens, "
            "asserts that all layers have latent attention; 0"
        )
    if not model.sliding_window:
        return
    if config.cp > 1:
        yield f"cp {config.cp} with sliding_window: attention with windows (varlen) is not divided over cp; cp 1"
    if workload.precision == "fp32":
        yield "precision fp32 with sliding_window: attention with windows (varlen) multiplies in bf16; bf16"


def assumed(config: ParallelConfig, workload: Workload) -> Iterator[str]:
    """How experts of qwen3 are chosen."""
    if workload.model.experts:
        yield (
            "Experts are chosen by softmax, and the weights of the chosen ones add up to 1, with a bias that balances their "
            "load (load_balance_coeff 0.001), as in its qwen3."
        )


def _after(model: Model) -> str:
    found = ""
    if model.experts:
        found += torchtitan_family.dense_layers(model, model.dense_layers, "qwen3")
        found += torchtitan_family.shared_experts(model.shared_ffn_hidden, "qwen3") if model.shared_ffn_hidden else ""
        found += GROUPS.format(groups=model.n_group, limited=model.topk_group) if model.n_group > 1 else ""
    if model.sliding_window:
        found += WINDOWS.format(condition=torchtitan_family.has_window(model), left=model.sliding_window - 1)
    return found


def _after_qwen3(model: Model) -> str:
    return _after(model) + (WITHOUT_NORMS if model.launch.qk_norm is False else "")


LLAMA3 = Family(
    "llama3",
    "Llama3Model",
    "llama3_8b",
    torchtitan_options.LLAMA3,
    "ComplexRoPE, Embedding, Linear, RMSNorm",
    """\
        tok_embeddings=Embedding.Config(num_embeddings=vocab, embedding_dim=dim, param_init={embedding}),
        norm=RMSNorm.Config(normalized_shape=dim, param_init=llama3._NORM_INIT),
        lm_head=Linear.Config(in_features=dim, out_features=vocab, param_init=llama3._output_linear_init(dim)),
        layers=llama3._build_llama3_layers(
            n_layers={layers},
            dim=dim,
            n_heads={heads},
            n_kv_heads={kv_heads},
            hidden_dim={ffn_hidden},
            rope=ComplexRoPE.Config(dim={head_dim}, max_seq_len=131072, {rope}),
            attn_backend="{backend}",{fused}
        ),
""",
    _after,
    "llama3._EMBEDDING_INIT",
    "llama3._EMBEDDING_SKIP_INIT",
    unsupported,
    assumed,
)
_QWEN3 = """\
        tok_embeddings=Embedding.Config(num_embeddings=vocab, embedding_dim=dim, param_init={embedding}),
        norm=qwen3._qwen3_norm(dim),
        lm_head=Linear.Config(in_features=dim, out_features=vocab, param_init=qwen3._LINEAR_INIT),
        layers=qwen3.%s(
            n_layers={layers},
            dim=dim,
            n_heads={heads},
            n_kv_heads={kv_heads},
            head_dim={head_dim},
            %s
            rope=CosSinRoPE.Config(dim={head_dim}, max_seq_len=131072, {rope}),
            attn_backend="{backend}",{fused}
        ),
"""


def _qwen3(base: str, builder: str, mlp: str) -> Family:
    inits = ("qwen3._EMBEDDING_INIT", "qwen3._EMBEDDING_SKIP_INIT")
    return Family(
        "qwen3", "Qwen3Model", base, torchtitan_options.QWEN3, "CosSinRoPE, Embedding, Linear", _QWEN3 % (builder, mlp),
        _after_qwen3, *inits, unsupported, assumed,
    )  # fmt: skip


QWEN3 = _qwen3("qwen3_32b", "_build_qwen3_layers", "hidden_dim={ffn_hidden},")
QWEN3_EXPERTS = _qwen3(
    "qwen3_30b_a3b",
    "_build_qwen3_moe_layers",
    'moe_hidden_dim={ffn_hidden}, num_experts={experts}, top_k={top_k}, moe_comm_backend="{dispatcher}",',
)
