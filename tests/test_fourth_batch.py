"""Runs of the fourth batch: how their steps follow from what is published, and the facts of their software."""

from __future__ import annotations

import pytest

from holmes_sim import validation
from tests.published_runs import check_file, config, runs

TRILLION = 10**12
BILLION = 10**9


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("new_software/mlperf_2023", 16), ("new_software/nemotron_340b", 3), ("new_software/pythia", 8),
        ("new_software/zero_3", 7), ("new_software/megatron_llama", 5), ("new_software/bloomberg_gpt", 1),
        ("new_software/glm_130b", 1), ("new_software/flm_101b", 1), ("new_software/poro", 1), ("new_software/smollm3", 1),
        ("unseen/ptd_p", 11),
    ],
)  # fmt: skip
def test_every_run_can_be_simulated_with_facts_of_its_software(name: str, number: int) -> None:
    check_file(name, number)


def megatron_flops(batch: int, layers: int, hidden: int, length: int = 2048, words: int = 51_200) -> float:
    """FLOPs of a step with recomputation, arXiv 2104.04473, formula 3."""
    factor = 1 + length / (6 * hidden) + words / (16 * layers * hidden)
    return 96 * batch * length * layers * hidden**2 * factor


def test_rates_of_table_2_of_megatron_say_its_seconds_and_days() -> None:
    """153 TFLOP/s of each of 384 A100: 84 days for 300 billion tokens of 174.6 billion parameters, 8 FLOPs each."""
    for file, name, devices, rate in (
        ("unseen/ptd_p", "ptd-p-175b-g384-tp8pp12", 384, 153), ("new_software/zero_3", "zero-3-175b-g768-mb2", 768, 88),
    ):  # fmt: skip
        seconds = megatron_flops(1536, 96, 12_288) / (rate * TRILLION * devices)
        assert runs(file)[name].measured_s == pytest.approx(seconds, rel=1e-4)
    days = 8 * 300 * BILLION * 174.6 * BILLION / (153 * TRILLION * 384) / 86_400
    assert days == pytest.approx(84, rel=0.02)


def test_under_zero_3_twice_the_devices_take_as_long() -> None:
    """A batch of 1,536 sequences on 768 and 1,536 A100, at 88 and 44 TFLOP/s: the network decides."""
    found = runs("new_software/zero_3")
    assert found["zero-3-175b-g768-mb2"].measured_s == found["zero-3-175b-g1536-mb1"].measured_s


def test_layouts_of_mlperf_are_those_of_its_configurations() -> None:
    """v4.0 on 11,616 H100: six stages of eight chunks of two layers, as many microbatches as stages."""
    found = {name: config(case) for name, case in runs("new_software/mlperf_2023").items()}
    last = found["mlperf-v4.0-eos-175b-h100-g11616-fp8-tp4pp6vp8-gbs2904"]
    assert (last.dp, last.num_microbatches[0], 96 // last.num_stages) == (484, 6, 2)
    assert sum(one.num_microbatches[0] == one.pp for one in found.values()) == 5


def test_only_v3_0_of_mlperf_shares_largest_values_among_replicas() -> None:
    found = {name: config(case) for name, case in runs("new_software/mlperf_2023").items()}
    assert {name.split("-")[1] for name, one in found.items() if one.amax_reduction} == {"v3.0"}


def test_published_mfu_of_nemotron_says_its_seconds() -> None:
    """42.4, 42.3 and 41.0 % of 989.4 TFLOP/s: 6 FLOPs for each weight and token, the whole square of attention counted."""
    layer = 18_432 * (18_432 + 2 * 1536) + 18_432**2 + 2 * 18_432 * 73_728
    token = 6 * (96 * layer + 256_000 * 18_432) + 12 * 96 * 18_432 * 4096
    for case, batch, devices, mfu in zip(
        runs("new_software/nemotron_340b").values(), (768, 1536, 2304), (1536, 3072, 6144), (0.424, 0.423, 0.410), strict=True
    ):
        assert case.measured_s == pytest.approx(batch * 4096 * token / (mfu * 989.4 * TRILLION * devices), rel=0.02)


def test_published_flops_of_bloomberg_say_its_seconds() -> None:
    """102 TFLOP/s of 512 devices in 32.5 s: 8 FLOPs for each of 50.6 billion parameters and 2,048 x 2,048 tokens."""
    case = runs("new_software/bloomberg_gpt")["bloomberg-gpt-50b-g512"]
    assert case.measured_s == 32.5
    assert pytest.approx(102, abs=0.5) == 8 * 50.6 * BILLION * 2048**2 / (32.5 * 512) / TRILLION
    assert (config(case).zero_shard_size, config(case).zero_stage) == (128, 3)


def test_published_flops_of_poro_count_recomputation() -> None:
    """174,378 tokens per second and 49,618 TFLOP/s in all."""
    case = runs("new_software/poro")["poro-34b-mi250x-g1024-tp2pp4"]
    assert case.measured_s == pytest.approx(2048 * 2048 / 174_378, rel=1e-4)
    flops = megatron_flops(2048, 54, 7168, words=128_256)
    assert flops / (2048**2 / 174_378) / TRILLION == pytest.approx(49_618, rel=0.02)


def test_steps_of_pythia_are_device_hours_over_steps() -> None:
    """72,300 hours of 256 devices in 143,000 steps of 1,024 sequences; those of 2.8B are twice those of 1.4B."""
    found = runs("new_software/pythia")
    assert found["pythia-12b-g256-tp4"].measured_s == pytest.approx(72_300 * 3600 / 256 / 143_000, rel=1e-4)
    assert {sum(config(case).num_microbatches) * config(case).microbatch_size for case in found.values()} == {1024}
    twice = 2 * (found["pythia-1.4b-g64-tp1"].measured_s or 0.0)
    assert found["pythia-2.8b-g64-tp1"].measured_s == pytest.approx(twice, rel=1e-4)


def test_steps_of_megatron_llama_are_tokens_by_tokens_per_second() -> None:
    """1,845 of each of 512 devices; 10^10 tokens in 40.3 hours on 32, of which 512 have 0.85 as it says."""
    found = runs("new_software/megatron_llama")
    few, many = (found[f"megatron-llama-13b-g{devices}-overlapped"].measured_s or 0.0 for devices in (32, 512))
    assert many == pytest.approx(2048**2 / (1845 * 512), rel=1e-4)
    assert few / many / 16 == pytest.approx(0.85, abs=0.01)


def test_rates_of_glm_and_flm_say_their_seconds() -> None:
    """MFU of 32.5 and 52.88 %: 72 b s l h^2 (1 + s / 6h + V / 12 l h); 43.3 % with recomputation is a third more."""
    glm = runs("new_software/glm_130b")["glm-130b-g768-tp4pp8"]
    flm = runs("new_software/flm_101b")["flm-101b-g192-tp4pp4"]
    for case, batch, layers, hidden, words, rate, devices in (
        (glm, 4224, 70, 12_288, 150_528, 0.325 * 312, 768), (flm, 2160, 80, 10_240, 100_352, 0.5288 * 312, 192),
    ):  # fmt: skip
        factor = 1 + 2048 / (6 * hidden) + words / (12 * layers * hidden)
        flops = 72 * batch * 2048 * layers * hidden**2 * factor
        assert case.measured_s == pytest.approx(flops / (rate * TRILLION * devices), rel=1e-3)
    assert pytest.approx(4 / 3, rel=0.01) == 0.433 / 0.325


def test_smollm_is_nanotron_with_its_tokens_of_a_second() -> None:
    case = runs("new_software/smollm3")["smollm3-3b-g384-tp2"]
    assert case.measured_s == pytest.approx(192 * 3 * 4096 / (14_000 * 384), rel=1e-3)
    assert validation.stack_of(case, "default")[1].all_reduces
