"""Models whose layers differ, latent attention, windows and layers that predict further tokens: parameters, FLOPs, kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.formats import catalog
from sim.workload.end_kernels import head_kernels
from sim.workload.kernels import Attention, Gemm, Kernel, LayerSharding, layer_kernels
from sim.workload.model import Model
from sim.workload.workload import Workload

MIXED = Model(
    "mixed", layers=6, hidden=64, heads=4, kv_heads=4, ffn_hidden=32, vocab=100, mlp="swiglu", tied_embeddings=False, experts=8,
    experts_per_token=2, dense_layers=2, dense_ffn_hidden=128,
)  # fmt: skip
LATENT = Model(
    "latent", layers=2, hidden=64, heads=4, kv_heads=4, ffn_hidden=256, vocab=100, mlp="swiglu", tied_embeddings=False,
    attention="mla", q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=12, qk_rope_head_dim=4, v_head_dim=8,
)  # fmt: skip
# Billions of parameters of the model card or report, without layers that predict further tokens.
CARDS = {
    "deepseek-v3": 671, "deepseek-v2": 236, "kimi-k2": 1026, "gpt-oss-120b": 116.83, "gpt-oss-20b": 20.91,
    "llama-4-maverick": 400, "qwen3-235b-a22b": 235, "qwen3-30b-a3b": 30.53, "mixtral-8x7b": 46.7, "mixtral-8x22b": 140.6,
    "glm-4.5": 352.8, "grok-1": 315.7,
    "gemma-2b": 2.506, "gemma-7b": 8.538, "gemma-2-9b": 9.241, "gemma-2-27b": 27.227, "phi-3-mini": 3.82,
    "phi-4": 14.66, "mistral-small-24b": 23.57, "glm-4-9b": 9.4, "qwen3-8b": 8.19, "qwen3-14b": 14.77,
    "qwen3-32b": 32.76, "qwen2-57b-a14b": 57.41, "glm-4.5-air": 106.85, "llama-4-scout": 107.77,
    "deepseek-v2-lite": 15.7,
    "llama-3.1-8b": 8.03, "llama-3.1-70b": 70.55, "llama-3.2-1b": 1.236, "llama-3.2-3b": 3.213,
    "qwen2.5-7b": 7.616, "qwen2.5-14b": 14.77, "qwen2.5-32b": 32.76, "qwen2.5-72b": 72.71,
    "qwen3-1.7b": 1.721, "qwen3-4b": 4.022,
    "gemma-3-1b": 1.0, "gemma-3-4b": 3.884, "gemma-3-12b": 11.771, "gemma-3-27b": 27.016,  # arXiv 2503.19786, table 1
}  # fmt: skip


def gemms(kernels: tuple[Kernel, ...]) -> dict[str, tuple[int, int, int]]:
    """Name -> (m, n, k) of the products."""
    return {kernel.name: (kernel.m, kernel.n, kernel.k) for kernel in kernels if isinstance(kernel, Gemm)}


@pytest.mark.parametrize(("name", "billions"), CARDS.items())
def test_a_model_of_the_catalogue_has_the_parameters_of_its_card(name: str, billions: float) -> None:
    assert catalog.model(name).parameters == pytest.approx(billions * 1e9, rel=5e-3)


def test_telechat3_has_its_published_parameters() -> None:
    """105B-A4.7B and 36B (Tele-AI/TeleChat3). The 105 billion count the layer that predicts a further token, whose extra
    product of 2 x hidden by hidden is left out here; the 4.7 billion do not: 4 of 192 experts in each of 44 layers."""
    sparse, dense = catalog.model("telechat3-105b-a4.7b"), catalog.model("telechat3-36b")
    expert = 3 * 2560 * 1536
    assert round((sparse.parameters + sparse.layer_parameters) / 1e9) == 105
    assert round((sparse.parameters - 44 * (192 - 4) * expert) / 1e9, 1) == 4.7
    assert round(dense.parameters / 1e9) == 36


def test_gpt_oss_has_its_published_parameters_but_for_its_biases() -> None:
    """Billions of arXiv 2508.10925, table 1. A layer has a sink for each of 64 heads; not counted are the biases of attention
    (5,120 + 2,880), of the router (experts), and of each expert (3 x 2,880)."""
    for name, billions, layers, experts in (("gpt-oss-20b", 20.91, 24, 32), ("gpt-oss-120b", 116.83, 36, 128)):
        model = catalog.model(name)
        without = replace(model, attention_sinks=False)
        assert model.parameters - without.parameters == layers * 64
        assert layer_kernels(model, 1, 64, LayerSharding(), 2) == layer_kernels(without, 1, 64, LayerSharding(), 2)
        biases = layers * (5120 + 2880 + experts + experts * 3 * 2880)
        assert round((model.parameters + biases) / 1e9, 2) == billions


def test_a_stage_holds_the_kinds_of_its_layers() -> None:
    dense = replace(MIXED, experts=0, experts_per_token=0, dense_layers=0, dense_ffn_hidden=0, ffn_hidden=128)
    routed = replace(MIXED, dense_layers=0, dense_ffn_hidden=0)
    assert MIXED.kinds(0, 6) == ((2, dense), (4, routed))
    assert MIXED.kinds(1, 3) == ((1, dense), (1, routed))
    assert MIXED.parameters == 2 * dense.layer_parameters + 4 * routed.layer_parameters + 100 * 64 * 2 + 64
    workload = Workload(MIXED, 8, 64)
    assert workload.of_stage(3, True, False).held == ((2, dense), (1, routed)), "the first stage has all dense layers"
    assert workload.of_stage(3, False, False).held == ((3, routed),)
    assert Workload(routed, 8, 64).of_stage(3, True, False).held == (), "equal layers need no list"


def test_every_other_layer_may_have_experts_or_a_window() -> None:
    alternating = replace(MIXED, dense_layers=0, moe_layer_step=2)
    assert [(number, kind.experts) for number, kind in alternating.kinds(0, 3)] == [(2, 0), (1, 8)]
    windowed = replace(MIXED, sliding_window=16, sliding_window_every=3)
    assert [(number, bool(kind.experts), kind.sliding_window) for number, kind in windowed.kinds(0, 6)] == [
        (1, False, 16), (1, False, 0), (3, True, 0), (1, True, 16),
    ]  # fmt: skip


def test_every_sixth_layer_of_gemma_3_has_full_attention() -> None:
    """Layers 6, 12, 18 and 24 of 26, counted from 1."""
    model = catalog.model("gemma-3-1b")
    assert [layer + 1 for layer in range(26) if not model.has_window(layer)] == [6, 12, 18, 24]
    assert [(number, kind.sliding_window) for number, kind in model.kinds(0, 26)] == [(22, 512), (4, 0)]
    assert [kind.sliding_window for _, kind in model.kinds(4, 6)] == [512, 0] and not model.is_uniform


def test_latent_attention_is_made_of_low_rank_products() -> None:
    """b 1, s 32: 64 to 24 + 16 + 4, then 24 to 4 heads of 12 + 4 and 16 to 4 heads of 12 + 8, and 4 heads of 8 to 64."""
    kernels = layer_kernels(LATENT, 1, 32, LayerSharding(), 2)
    found = gemms(kernels)
    assert (found["qkv"], found["queries"], found["keys and values"], found["projection"]) == (
        (32, 44, 64), (32, 64, 24), (32, 80, 16), (32, 64, 32),
    )  # fmt: skip
    halves = gemms(layer_kernels(LATENT, 1, 32, LayerSharding(2, True), 2))
    assert (halves["qkv"], halves["queries"], halves["keys and values"]) == ((16, 44, 64), (32, 32, 24), (32, 40, 16))
    products = sum(k * n for _, n, k in list(found.values())[:4])
    assert LATENT.layer_parameters == products + 3 * 64 * 256 + 2 * 64 + 24 + 16
    (core,) = (kernel for kernel in kernels if isinstance(kernel, Attention))
    assert (core.head_dim, core.value_dim, core.flops) == (16, 8, 4 * 32**2 * (16 + 8))


def test_ranks_of_some_software_make_the_latent_vectors_of_all_tokens() -> None:
    """tp 2 with sequence parallelism: 32 tokens instead of 16, whose hidden state and latent vectors are kept, at 2 bytes."""
    own = layer_kernels(LATENT, 1, 32, LayerSharding(2, True), 2)
    whole = layer_kernels(LATENT, 1, 32, LayerSharding(2, True, whole_latents=True), 2)
    assert gemms(whole)["qkv"] == (32, 44, 64)
    differ = [(one.name, one.saved, other.saved) for one, other in zip(own, whole, strict=True) if one != other]
    assert differ == [("qkv", 16 * 64 * 2, 32 * 64 * 2), ("latent norm", 16 * 40 * 2, 32 * 40 * 2)]
    alone = LayerSharding(whole_latents=True)
    assert layer_kernels(LATENT, 1, 32, alone, 2) == layer_kernels(LATENT, 1, 32, LayerSharding(), 2)


def test_queries_may_come_from_one_product() -> None:
    lite = gemms(layer_kernels(replace(LATENT, q_lora_rank=0), 1, 32, LayerSharding(), 2))
    assert (lite["qkv"], lite["queries"]) == ((32, 20, 64), (32, 64, 64))


@pytest.mark.parametrize(("window", "scores"), [(0, 32**2), (32, 32**2), (40, 32**2), (1, 2 * 32 - 1), (8, 32**2 - 24**2)])
def test_a_window_counts_the_scores_that_a_token_sees(window: int, scores: int) -> None:
    """Each of 32 tokens sees min(its number, window) tokens; `scores` is twice that sum, less the diagonal counted twice."""
    core = Attention("core", 1, 1, 1, 8, 32, window=window)
    assert core.scores == scores
    seen = sum(min(token, window or 32) for token in range(1, 33))
    assert 2 * seen - min(window or 32, 32) == pytest.approx(scores, abs=min(window or 32, 32))


def test_layers_that_predict_further_tokens_have_a_head_each() -> None:
    further = replace(MIXED, mtp_layers=2)
    one, three = head_kernels(MIXED, 1, 32, 1, 2), head_kernels(further, 1, 32, 1, 2)
    assert [kernel.name for kernel in three].count("logits") == 3
    assert gemms(three)["joined"] == (32, 64, 128)
    assert sum(k.flops for k in three if isinstance(k, Gemm)) == 3 * one[1].flops + 2 * 2 * 32 * 64 * 128
    assert further.head_parameters - MIXED.head_parameters == 2 * (2 * 64**2 + 3 * 64)
    assert further.parameters - MIXED.parameters == 2 * (2 * 64**2 + 3 * 64), "cards do not count their layers"
    held = Workload(further, 8, 64).of_layers(3, 6, True).held
    assert [(number, kind.experts, kind.mtp_layers) for number, kind in held] == [(5, 8, 0)]


def test_the_flops_of_a_step_are_those_of_its_kinds_of_layers() -> None:
    dense, routed = (Workload(replace(kind, layers=1), 8, 64) for _, kind in MIXED.kinds(0, 6))
    logits = 3 * 8 * 2 * 64 * 64 * 100
    assert Workload(MIXED, 8, 64).flops == pytest.approx(2 * (dense.flops - logits) + 4 * (routed.flops - logits) + logits)


@pytest.mark.parametrize(("change", "message"), [
    ({"attention": "latent"}, "attention 'latent' is unknown; known: standard, mla"),
    ({"kv_lora_rank": 8}, "kv_lora_rank 8 needs attention mla"),
    ({"attention": "mla", "kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4},
     "v_head_dim must be at least 1 with attention mla, not 0"),
    ({"dense_ffn_hidden": 0}, "dense_layers and moe_layer_step need experts, and dense_ffn_hidden, the width of"),
    ({"dense_layers": 6}, "dense_layers 6 leaves none of 6 layers with experts"),
    ({"full_attention_every": 1, "sliding_window": 8}, "full_attention_every 1 must be 0, or at least 2 with a sliding_window"),
    ({"full_attention_every": 6}, "full_attention_every 6 must be 0, or at least 2 with a sliding_window"),
    ({"moe_layer_step": 0}, "moe_layer_step and sliding_window_every must be at least 1"),
    ({"mtp_layers": -1}, "mtp_layers must be at least 0, not -1"),
])  # fmt: skip
def test_wrong_keys_are_refused(change: dict[str, object], message: str) -> None:
    facts = {"v_head_dim": 0} | change
    with pytest.raises(ValueError, match=message):
        replace(MIXED, **facts)
