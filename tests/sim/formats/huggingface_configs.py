"""Published config.json files, and how tests write them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from sim.workload.launch_facts import LaunchFacts
from sim.workload.model import Model

LLAMA_2_7B = {
    "_name_or_path": "meta-llama/Llama-2-7b-hf",
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "max_position_embeddings": 4096,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 32,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "vocab_size": 32000,
}
MISTRAL_7B = {
    "architectures": ["MistralForCausalLM"],
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "model_type": "mistral",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "sliding_window": 4096,
    "tie_word_embeddings": False,
    "vocab_size": 32000,
}
MISTRAL_NEMO_12B = {
    **MISTRAL_7B,
    "head_dim": 128,
    "hidden_size": 5120,
    "max_position_embeddings": 131072,
    "num_hidden_layers": 40,
    "sliding_window": None,
    "vocab_size": 131072,
}
MIXTRAL_8X7B = {
    "architectures": ["MixtralForCausalLM"],
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "model_type": "mixtral",
    "num_attention_heads": 32,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "vocab_size": 32000,
}
QWEN2_7B = {
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_act": "silu",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "max_position_embeddings": 131072,
    "max_window_layers": 28,
    "model_type": "qwen2",
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "vocab_size": 152064,
}
QWEN3_8B = {
    "attention_bias": False,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "model_type": "qwen3",
    "num_attention_heads": 32,
    "num_hidden_layers": 36,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "vocab_size": 151936,
}
QWEN15_MOE_A27B = {
    "decoder_sparse_step": 1,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "model_type": "qwen2_moe",
    "moe_intermediate_size": 1408,
    "num_attention_heads": 16,
    "num_experts": 60,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 24,
    "num_key_value_heads": 16,
    "shared_expert_intermediate_size": 5632,
    "tie_word_embeddings": False,
    "vocab_size": 151936,
}
QWEN3_30B_A3B = {
    "decoder_sparse_step": 1,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "mlp_only_layers": [],
    "model_type": "qwen3_moe",
    "moe_intermediate_size": 768,
    "num_attention_heads": 32,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
    "vocab_size": 151936,
}
GPT2 = {
    "activation_function": "gelu_new",
    "architectures": ["GPT2LMHeadModel"],
    "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2",
    "n_ctx": 1024,
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
    "vocab_size": 50257,
}
GPT_NEOX_20B = {
    "architectures": ["GPTNeoXForCausalLM"],
    "hidden_act": "gelu_fast",
    "hidden_size": 6144,
    "intermediate_size": 24576,
    "max_position_embeddings": 2048,
    "model_type": "gpt_neox",
    "num_attention_heads": 64,
    "num_hidden_layers": 44,
    "rotary_pct": 0.25,
    "tie_word_embeddings": False,
    "vocab_size": 50432,
}
OPT_1_3B = {
    "_remove_final_layer_norm": False,
    "activation_function": "relu",
    "architectures": ["OPTForCausalLM"],
    "do_layer_norm_before": True,
    "ffn_dim": 8192,
    "hidden_size": 2048,
    "max_position_embeddings": 2048,
    "model_type": "opt",
    "num_attention_heads": 32,
    "num_hidden_layers": 24,
    "vocab_size": 50272,
    "word_embed_proj_dim": 2048,
}
OPT_6_7B = {**OPT_1_3B, "ffn_dim": 16384, "hidden_size": 4096, "num_hidden_layers": 32, "word_embed_proj_dim": 4096}
BLOOM_176B = {
    "architectures": ["BloomForCausalLM"],
    "attention_softmax_in_fp32": True,
    "model_type": "bloom",
    "n_embed": 14336,
    "n_layer": 70,
    "num_attention_heads": 112,
    "pretraining_tp": 4,
    "vocab_size": 250880,
}

LLAMA_AS_MODEL = Model(
    "meta-llama/Llama-2-7b-hf",
    layers=32,
    hidden=4096,
    heads=32,
    kv_heads=32,
    head_dim=128,
    ffn_hidden=11008,
    vocab=32000,
    mlp="swiglu",
    tied_embeddings=False,
)


def write(folder: Path, config: object) -> Path:
    """A config.json in a folder, one key a line, sorted by key, as transformers writes it."""
    folder.mkdir(exist_ok=True, parents=True)
    file = folder / "config.json"
    file.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return file


def shape(model: Model) -> Model:
    """The model without the facts that only launches need."""
    return replace(model, launch=LaunchFacts())


def without(config: dict[str, object], key: str) -> dict[str, object]:
    """A copy of a config that lacks one key."""
    return {name: value for name, value in config.items() if name != key}


def dense(family: str, hidden: int, layers: int, heads: int, ffn: int, vocab: int, **more: int | None) -> dict[str, object]:
    return {
        "model_type": family, "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "intermediate_size": ffn, "vocab_size": vocab, **more,
    }  # fmt: skip


CARDS = [
    (dense("gemma", 2048, 18, 8, 16384, 256000, num_key_value_heads=1, head_dim=256), 2.506),
    (dense("gemma", 3072, 28, 16, 24576, 256000, num_key_value_heads=16, head_dim=256), 8.538),
    (dense("gemma2", 3584, 42, 16, 14336, 256000, num_key_value_heads=8, head_dim=256, sliding_window=4096), 9.242),
    (dense("gemma3_text", 1152, 26, 4, 6912, 262144, num_key_value_heads=1, head_dim=256, sliding_window=512), 1.000),
    (dense("phi", 2560, 32, 32, 10240, 51200, num_key_value_heads=32), 2.780),
    (dense("phi3", 3072, 32, 32, 8192, 32064, num_key_value_heads=32, sliding_window=2047), 3.821),
    (dense("glm4", 4096, 40, 32, 13696, 151552, num_key_value_heads=2, head_dim=128), 9.400),
    (dense("glm", 4096, 40, 32, 13696, 151552, num_key_value_heads=2, head_dim=128), 9.400),
    (dense("mistral", 5120, 40, 32, 32768, 131072, num_key_value_heads=8, head_dim=128), 23.572),
]
NAMES_OF_CARDS = [
    "gemma-2b",
    "gemma-7b",
    "gemma-2-9b",
    "gemma-3-1b",
    "phi-2",
    "phi-3-mini",
    "glm-4-9b-0414",
    "glm-4-9b-hf",
    "mistral-small-24b",
]
