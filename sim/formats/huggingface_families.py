"""The families of Hugging Face's model configurations: the keys of each for the numbers of a model.

The keys, and the meaning of absent or null keys, are those of `configuration_<family>.py` in huggingface/transformers,
src/transformers/models, and of the configurations that DeepSeek, Moonshot and xAI publish with their models. gpt_oss windows
every second layer, from the first one (`layer_types`), and adds a learned sink to the scores, which no key says; llama4's
experts beside the routed one are as wide as it. grok-1 and gemma have gated MLPs with GELU, which have swiglu's matrices; the
second norms of gemma2, gemma3 and glm4 are left out. gemma3 windows five of six layers (`GEMMA3`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

Keys: TypeAlias = tuple[str, ...]
GEMMA3 = 6
"""Layers from one with full attention to the next one in gemma3, where a configuration does not say it (its default)."""


@dataclass(frozen=True, slots=True)
class Family:
    """A model family: for each number its possible keys, of which the first present one is used; () if it has no key."""

    mlp: str
    tied: bool
    layers: Keys = ("num_hidden_layers",)
    hidden: Keys = ("hidden_size",)
    heads: Keys = ("num_attention_heads",)
    kv_heads: Keys = ()
    head_dim: Keys = ()
    ffn_hidden: Keys = ("intermediate_size",)
    vocab: Keys = ("vocab_size",)
    positions: Keys = ()
    more_positions: int = 0
    experts: Keys = ()
    experts_per_token: Keys = ()
    shared_ffn_hidden: Keys = ()
    shared_experts: Keys = ()
    dense_layers: Keys = ()
    dense_ffn_hidden: Keys = ()
    moe_layer_step: Keys = ()
    q_lora_rank: Keys = ()
    kv_lora_rank: Keys = ()
    qk_nope_head_dim: Keys = ()
    qk_rope_head_dim: Keys = ()
    v_head_dim: Keys = ()
    mtp_layers: Keys = ()
    sliding_window: Keys = ()
    sliding_window_every: int = 1
    full_attention_every: Keys = ()
    n_group: Keys = ()
    topk_group: Keys = ()
    attention_sinks: bool = False
    may_be_absent: Keys = ("head_dim",)

    @property
    def attention(self) -> str:
        """The kind of attention (`sim.workload.model.ATTENTION_KINDS`)."""
        return "mla" if self.kv_lora_rank else "standard"


_KV = ("num_key_value_heads",)
_DIM = ("head_dim",)
_LAYERS = ("n_layer", "num_hidden_layers")
_HEADS = ("n_head", "num_attention_heads")
_ROUTED = ("num_experts_per_tok",)

_QWEN_MOE = Family(
    "swiglu",
    tied=False,
    kv_heads=_KV,
    head_dim=_DIM,
    ffn_hidden=("moe_intermediate_size",),
    experts=("num_experts", "num_local_experts"),
    experts_per_token=_ROUTED,
)

_DENSE_FIRST = Family(
    "swiglu",
    tied=False,
    ffn_hidden=("moe_intermediate_size",),
    experts=("n_routed_experts",),
    experts_per_token=_ROUTED,
    shared_experts=("n_shared_experts",),
    dense_layers=("first_k_dense_replace",),
    dense_ffn_hidden=("intermediate_size",),
    mtp_layers=("num_nextn_predict_layers",),
    n_group=("n_group",),
    topk_group=("topk_group",),
    may_be_absent=("q_lora_rank", "shared_experts", "dense_layers", "mtp_layers", "n_group", "topk_group"),
)
_DEEPSEEK = replace(
    _DENSE_FIRST,
    q_lora_rank=("q_lora_rank",),
    kv_lora_rank=("kv_lora_rank",),
    qk_nope_head_dim=("qk_nope_head_dim",),
    qk_rope_head_dim=("qk_rope_head_dim",),
    v_head_dim=("v_head_dim",),
)

FAMILIES: dict[str, Family] = {
    "llama": Family("swiglu", tied=False, kv_heads=_KV, head_dim=_DIM, may_be_absent=("head_dim", "kv_heads")),
    "mistral": Family("swiglu", tied=False, kv_heads=_KV, head_dim=_DIM),
    "mixtral": Family(
        "swiglu",
        tied=False,
        kv_heads=_KV,
        head_dim=_DIM,
        experts=("num_local_experts", "num_experts"),
        experts_per_token=_ROUTED,
    ),
    "qwen2": Family("swiglu", tied=False, kv_heads=_KV, head_dim=_DIM),
    "qwen2_moe": replace(_QWEN_MOE, shared_ffn_hidden=("shared_expert_intermediate_size",)),
    "qwen3": Family("swiglu", tied=False, kv_heads=_KV, head_dim=_DIM, may_be_absent=()),
    "qwen3_moe": _QWEN_MOE,
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "glm4_moe": replace(_DENSE_FIRST, kv_heads=_KV, head_dim=_DIM),
    "gpt_oss": Family(
        "swiglu",
        tied=False,
        kv_heads=_KV,
        head_dim=_DIM,
        experts=("num_local_experts",),
        experts_per_token=("num_experts_per_tok", "experts_per_token"),
        sliding_window=("sliding_window",),
        sliding_window_every=2,
        attention_sinks=True,
        may_be_absent=("sliding_window",),
    ),
    "llama4_text": Family(
        "swiglu",
        tied=False,
        kv_heads=_KV,
        head_dim=_DIM,
        experts=("num_local_experts",),
        experts_per_token=_ROUTED,
        shared_ffn_hidden=("intermediate_size",),
        dense_ffn_hidden=("intermediate_size_mlp",),
        moe_layer_step=("interleave_moe_layer_step",),
        may_be_absent=("moe_layer_step",),
    ),
    "grok-1": Family("swiglu", tied=True, kv_heads=_KV, experts=("num_experts",), experts_per_token=_ROUTED),
    "gemma": Family("swiglu", tied=True, kv_heads=_KV, head_dim=_DIM, may_be_absent=()),
    "gemma2": Family(
        "swiglu",
        tied=True,
        kv_heads=_KV,
        head_dim=_DIM,
        sliding_window=("sliding_window",),
        sliding_window_every=2,
        may_be_absent=(),
    ),
    "gemma3_text": Family(
        "swiglu",
        tied=True,
        kv_heads=_KV,
        head_dim=_DIM,
        sliding_window=("sliding_window",),
        full_attention_every=("sliding_window_pattern",),
        may_be_absent=("full_attention_every",),
    ),
    "phi": Family("gelu", tied=False, kv_heads=_KV, may_be_absent=("kv_heads",)),
    "phi3": Family(
        "swiglu",
        tied=False,
        kv_heads=_KV,
        sliding_window=("sliding_window",),
        may_be_absent=("kv_heads", "sliding_window"),
    ),
    "glm": Family("swiglu", tied=False, kv_heads=_KV, head_dim=_DIM),
    "glm4": Family("swiglu", tied=False, kv_heads=_KV, head_dim=_DIM),
    "gpt2": Family(
        "gelu",
        tied=True,
        layers=_LAYERS,
        hidden=("n_embd", "hidden_size"),
        heads=_HEADS,
        ffn_hidden=("n_inner",),
        positions=("n_positions", "max_position_embeddings"),
        may_be_absent=("ffn_hidden",),
    ),
    "gpt_neox": Family("gelu", tied=False),
    "opt": Family("gelu", tied=True, ffn_hidden=("ffn_dim",), positions=("max_position_embeddings",), more_positions=2),
    "bloom": Family("gelu", tied=True, layers=_LAYERS, hidden=("n_embed", "hidden_size"), heads=_HEADS, ffn_hidden=()),
}
"""`model_type` of a config.json -> its keys."""
