"""The config.json files of published mixtures of experts, as far as they are read, from memory."""

from __future__ import annotations

DEEPSEEK_V3 = {
    "model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128,
    "num_key_value_heads": 128, "vocab_size": 129280, "intermediate_size": 18432, "moe_intermediate_size": 2048,
    "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1, "first_k_dense_replace": 3, "moe_layer_freq": 1,
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "num_nextn_predict_layers": 1, "tie_word_embeddings": False, "n_group": 8, "topk_group": 4, "topk_method": "noaux_tc",
}  # fmt: skip
DEEPSEEK_V2 = DEEPSEEK_V3 | {
    "model_type": "deepseek_v2", "num_hidden_layers": 60, "hidden_size": 5120, "vocab_size": 102400, "intermediate_size": 12288,
    "moe_intermediate_size": 1536, "n_routed_experts": 160, "num_experts_per_tok": 6, "n_shared_experts": 2,
    "first_k_dense_replace": 1, "num_nextn_predict_layers": None, "topk_group": 3, "topk_method": "group_limited_greedy",
}  # fmt: skip
DEEPSEEK_V2_LITE = DEEPSEEK_V2 | {
    "num_hidden_layers": 27, "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 16, "q_lora_rank": None,
    "intermediate_size": 10944, "moe_intermediate_size": 1408, "n_routed_experts": 64, "n_group": 1, "topk_group": 1,
    "topk_method": "greedy",
}  # fmt: skip
KIMI_K2 = DEEPSEEK_V3 | {
    "model_type": "kimi_k2", "num_attention_heads": 64, "num_key_value_heads": 64, "vocab_size": 163840,
    "n_routed_experts": 384, "first_k_dense_replace": 1, "num_nextn_predict_layers": 0, "n_group": 1, "topk_group": 1,
}  # fmt: skip
GPT_OSS_120B = {
    "model_type": "gpt_oss", "num_hidden_layers": 36, "hidden_size": 2880, "num_attention_heads": 64, "num_key_value_heads": 8,
    "head_dim": 64, "vocab_size": 201088, "intermediate_size": 2880, "num_local_experts": 128, "num_experts_per_tok": 4,
    "sliding_window": 128,
}  # fmt: skip
GPT_OSS_20B = GPT_OSS_120B | {"num_hidden_layers": 24, "num_local_experts": 32}
LLAMA_4_MAVERICK = {
    "model_type": "llama4_text", "num_hidden_layers": 48, "hidden_size": 5120, "num_attention_heads": 40,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 202048, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
    "num_local_experts": 128, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "tie_word_embeddings": False,
}  # fmt: skip
GLM_4_5 = {
    "model_type": "glm4_moe", "num_hidden_layers": 92, "hidden_size": 5120, "num_attention_heads": 96, "num_key_value_heads": 8,
    "head_dim": 128, "vocab_size": 151552, "intermediate_size": 12288, "moe_intermediate_size": 1536, "n_routed_experts": 160,
    "num_experts_per_tok": 8, "n_shared_experts": 1, "first_k_dense_replace": 3, "num_nextn_predict_layers": 1,
}  # fmt: skip
GROK_1 = {
    "model_type": "grok-1", "num_hidden_layers": 64, "hidden_size": 6144, "num_attention_heads": 48, "num_key_value_heads": 8,
    "vocab_size": 131072, "intermediate_size": 32768, "num_experts": 8, "num_experts_per_tok": 2,
}  # fmt: skip
QWEN3_235B = {
    "model_type": "qwen3_moe", "num_hidden_layers": 94, "hidden_size": 4096, "num_attention_heads": 64,
    "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "intermediate_size": 12288, "moe_intermediate_size": 1536,
    "num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": [],
}  # fmt: skip
