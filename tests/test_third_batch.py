"""Runs of the third batch of new software: how their steps follow from what is published, and the facts of their software."""

from __future__ import annotations

import pytest

from holmes_sim import validation
from tests.published_runs import check_file, config, runs

TRILLION = 10**12


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("new_software/aleph_alpha", 62), ("new_software/megatron_core_h100", 9), ("new_software/megascale", 11),
        ("new_software/nemotron_4", 3), ("new_software/atorch", 10), ("new_software/mt_nlg", 3),
        ("new_software/bridge_qwen3", 17), ("new_software/alps_gh200", 10), ("new_software/twist", 7),
        ("mixtures/plain_recipes", 3),
    ],
)  # fmt: skip
def test_every_run_can_be_simulated_with_facts_of_its_software(name: str, number: int) -> None:
    check_file(name, number)


def test_published_mfu_of_aleph_alpha_says_batch_and_vocabulary() -> None:
    """0.705731 of 312 TFLOP/s on 64 devices in 26.53955 s: both embeddings of 128,000 tokens, the whole square of attention."""
    weights = 40 * (4 * 5120**2 + 3 * 5120 * 13_824) + 2 * 128_000 * 5120
    tokens = 2048 * 2048
    flops = tokens * (6 * weights + 12 * 40 * 5120 * 2048)
    assert flops / (26.53955 * 64 * 312 * TRILLION) == pytest.approx(0.705731, rel=0.007)


def test_stages_of_scaling_are_uniform_in_layers_and_ends() -> None:
    """43 parts of 13B on two stages are 22 and 21: the embedding and 21 layers, and 19 with the norm and the head."""
    case = runs("new_software/aleph_alpha")["aleph-13b-s2048-g64-tp1pp2-mb2-132186"]
    assert case.plan is not None
    assert [(stage.first, stage.past_last) for stage in case.plan.stages] == [(0, 21), (21, 40)]


def test_steps_of_megatron_core_follow_from_flops_of_a_device() -> None:
    """72 b s l h^2 (1 + s / 6h + V / 12 l h) of 462B, at 459.9 TFLOP/s on 6,144 devices."""
    batch, length, layers, hidden, words = 3072, 4096, 112, 18_432, 131_072
    factor = 1 + length / (6 * hidden) + words / (12 * layers * hidden)
    flops = 72 * batch * length * layers * hidden**2 * factor
    case = runs("new_software/megatron_core_h100")["mcore-462b-h100-g6144-tp8pp16"]
    assert case.measured_s == pytest.approx(flops / (459.9 * TRILLION * 6144), rel=1e-4)


def test_steps_of_megascale_are_tokens_by_tokens_per_second() -> None:
    """The baseline's 1,466.8 thousand tokens a second on 12,288 devices."""
    case = runs("new_software/megascale")["megascale-megatron-175b-g12288"]
    assert case.measured_s == pytest.approx(6144 * 2048 / 1466.8e3, rel=2e-3)
    assert config(case).num_microbatches == (32,) * 192


def test_flops_of_atorch_count_recomputation() -> None:
    """Four passes of layers and three of the head, over 153.93 TFLOP/s of each of 64 devices."""
    tokens, hidden = 8192 * 4096, 4096
    layer = 8 * hidden**2 + 4 * 4096 * hidden + 6 * hidden * 11_008
    flops = tokens * (4 * 32 * layer + 3 * 2 * hidden * 32_000)
    case = runs("new_software/atorch")["atorch-llama2-7b-3d-g64-tp2pp2"]
    assert case.measured_s == pytest.approx(flops / (153.93 * TRILLION * 64), rel=1e-4)


def test_published_flops_of_mt_nlg_count_recomputation() -> None:
    """126 TFLOP/s of a device in 60.1 s on 2,240: 96 b s l h^2 (1 + s / 6h + V / 16 l h)."""
    batch, length, layers, hidden, words = 1920, 2048, 105, 20_480, 51_200
    flops = 96 * batch * length * layers * hidden**2 * (1 + length / (6 * hidden) + words / (16 * layers * hidden))
    assert flops / (60.1 * 2240) / TRILLION == pytest.approx(126, abs=0.5)
    assert runs("new_software/mt_nlg")["mt-nlg-530b-g2240"].measured_s == 60.1


def test_flops_of_alps_count_half_the_square_of_attention() -> None:
    """Llama 3.1 70B with GPT-2's vocabulary at 444.2 TFLOP/s of each of 16 devices."""
    products = 8192 * (8192 + 2 * 1024) + 8192 * 8192 + 3 * 8192 * 28_672
    flops = 6 * 256 * 4096 * (80 * (products + 8192 * 4096) + 50_688 * 8192)
    case = runs("new_software/alps_gh200")["alps-llama3.1-70b-g16-tp4pp4-mb1"]
    assert case.measured_s == pytest.approx(flops / (444.2 * TRILLION * 16), rel=1e-4)


def test_heads_of_qwen3_32b_on_alps_are_narrow() -> None:
    """5,120 values of 64 heads: its script gives no --kv-channels."""
    plan = runs("new_software/alps_gh200")["alps-qwen3-32b-g8-tp4pp1-mb1"].plan
    assert plan is not None and plan.workload.model.head_dim == 80


def test_products_with_weights_of_their_own_have_their_own_sums() -> None:
    """Scaling joins queries, keys and values, ATorch and PaddleNLP nothing, PaddleNLP's GPT has no gate."""
    atorch, paddle = runs("new_software/atorch"), runs("new_software/paddlenlp")
    scaling = runs("new_software/aleph_alpha")["aleph-13b-s2048-g64-tp2pp2-mb1-132182"]
    llama, gpt = (next(case for name, case in paddle.items() if kind in name and "tp2" in name) for kind in ("llama", "gpt"))
    found = [config(one) for one in (scaling, atorch["atorch-llama2-7b-3d-g8-tp2pp1"], llama, gpt)]
    sums = [(one.separate_qkv, one.separate_gate) for one in found]
    assert sums == [(False, True), (True, True), (True, True), (True, False)]


def test_plain_recipes_of_megatron_bridge_compute_a_gated_activation_in_six_kernels() -> None:
    """silu 4 bytes and its product 6 forward; two gradients of the product 12, of silu 6, halves joined 8; fused 6 and 10.5."""
    stack = validation.stack_of(runs("new_software/bridge_qwen3")["nebius-q8b-baseline"], "default")[1]
    assert dict(stack.passes)["activation"] == pytest.approx((10 + 26) / 16.5, abs=0.005)
