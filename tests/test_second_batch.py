"""Runs of the second batch of new software: how their steps follow from what is published, and the facts of their software."""

from __future__ import annotations

import pytest

from tests.published_runs import check_file, config, runs


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("new_software/dlperf", 32), ("new_software/xtuner", 14), ("new_software/maxtext", 8), ("new_software/paxml", 11),
        ("new_software/ms_swift", 5), ("new_software/tinyllama", 1), ("new_software/paddlenlp", 20),
        ("new_software/flagscale", 4), ("mixtures/pai_megatron_patch", 12),
    ],
)  # fmt: skip
def test_every_run_can_be_simulated_with_facts_of_its_software(name: str, number: int) -> None:
    check_file(name, number)


def test_tokens_per_second_of_xtuner_are_steps_of_one_sequence_a_device() -> None:
    """Llama 2 7B on 32 devices, 133.6 tokens a second each: as many passes of 1,048,576 tokens as 16 ranks share one."""
    case = runs("new_software/xtuner")["xtuner-llama2-7b-g32-s1048576-sp16"]
    assert case.measured_s == pytest.approx(1_048_576 / 133.6, rel=1e-4)
    assert case.plan is not None
    assert (config(case).dp, config(case).cp, config(case).num_microbatches) == (2, 16, (16, 16))
    assert case.plan.workload.global_batch_size == 32


def test_flops_of_maxtext_count_the_whole_matrix_of_attention() -> None:
    """6 FLOPs a token and weight of the products, and 12 x tokens x length x hidden a layer, over 492 TFLOP/s."""
    tokens, weights = 4 * 4096, 32 * (4 * 4096**2 + 3 * 4096 * 11_008) + 32_000 * 4096
    flops = 6 * tokens * weights + 12 * tokens * 4096 * 4096 * 32
    case = runs("new_software/maxtext")["maxtext-llama2-7b-a3-g8"]
    assert case.measured_s == pytest.approx(flops / 492e12, rel=1e-4)


def test_steps_of_paddlenlp_are_the_batch_by_sequences_per_second() -> None:
    """4 M tokens of 2,048 at 16.67 sequences a second: 64 passes of 4 on each of 8 devices."""
    case = runs("new_software/paddlenlp")["paddlenlp-llama-7b-80gb-tp1pp1-z2"]
    assert case.measured_s == pytest.approx(2048 / 16.67, rel=1e-4)
    assert config(case).num_microbatches == (64,) * 8


def test_no_attention_of_paxml_is_fused_and_what_it_recomputes_follows_from_its_products() -> None:
    """A policy keeps results of `dot_general`, which products in fp8 are not; 126M has no policy."""
    found = {name: one.plan.config for name, one in runs("new_software/paxml").items() if one.plan is not None}
    assert {one.attention for one in found.values()} == {"unfused"}
    kinds = {name: one.recompute for name, one in found.items()}
    assert {kind for name, kind in kinds.items() if "126m" in name} == {"none"}
    assert {kind for name, kind in kinds.items() if "175b" in name} == {"full"}
    assert {name for name, kind in kinds.items() if "-5b-" in name and kind == "full"} == {"paxml-5b-h100-g256-te-fp8"}


def test_steps_of_paxml_are_sequences_by_sequences_per_second() -> None:
    assert runs("new_software/paxml")["paxml-175b-h100-g256-te-fp8"].measured_s == pytest.approx(256 * 6 / 65.64, rel=1e-4)


def test_megatron_of_march_2021_sends_whole_messages_and_oneflow_slices() -> None:
    found = runs("new_software/dlperf")
    whole = {name.split("-")[1]: config(case).whole_messages for name, case in found.items()}
    assert whole == {"megatron": True, "oneflow": False}


def test_oneflow_reduces_gradients_beside_the_backward_where_devices_share_nothing_but_data() -> None:
    found = {name: config(case) for name, case in runs("new_software/dlperf").items() if "oneflow" in name}
    assert {(one.tp == one.pp == 1, one.overlap_grad_reduce) for one in found.values()} == {(True, True), (False, False)}


def test_jax_stops_a_recomputed_mlp_early() -> None:
    """What a gradient does not need is not computed again."""
    one = config(runs("new_software/maxtext")["maxtext-llama3.1-70b-a3ultra-g256-bf16"])
    assert (one.modules, one.early_stop) == (("mlp",), True)
