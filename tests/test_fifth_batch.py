"""Runs of the fifth batch: how their steps follow from what is published, and the facts of their software."""

from __future__ import annotations

import pytest

from tests.published_runs import check_file, config, runs

OLMO, LLM_C, ALPS = "new_software/olmo_core", "new_software/llm_c", "new_software/alps_lengths"


@pytest.mark.parametrize(("name", "number"), [(OLMO, 9), (LLM_C, 4), (ALPS, 8)])
def test_every_run_can_be_simulated_with_facts_of_its_software(name: str, number: int) -> None:
    check_file(name, number)


@pytest.mark.parametrize(
    ("name", "devices", "rate"),
    [
        ("olmo-core-1b-h100-g8-bf16", 8, 55_000), ("olmo-core-1b-h100-g8-fp8", 8, 65_000),
        ("olmo-core-7b-h100-g8-bf16", 8, 10_000), ("olmo-core-7b-h100-g8-fp8", 8, 13_000),
        ("olmo-core-llama-8b-h100-g8-bf16", 8, 9_500), ("olmo-core-llama-8b-h100-g8-fp8", 8, 12_500),
        ("olmo-core-13b-h100-g8-bf16", 8, 4_600), ("olmo-core-13b-h100-g8-fp8", 8, 5_500),
        ("olmo-3-7b-h100-g512-bf16", 512, 7_700),
    ],
)  # fmt: skip
def test_tokens_per_second_of_olmo_core_say_its_seconds(name: str, devices: int, rate: int) -> None:
    """Table of OLMo-core's README (7e58d128), in tokens per second of a device."""
    case = runs(OLMO)[name]
    assert case.plan is not None
    workload = case.plan.workload
    assert case.measured_s == pytest.approx(workload.global_batch_size * workload.seq_len / (rate * devices), rel=1e-4)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("olmo-core-1b-h100-g8-bf16", 1.336), ("olmo-core-7b-h100-g8-bf16", 7.298), ("olmo-core-13b-h100-g8-bf16", 13.71),
        ("olmo-3-7b-h100-g512-bf16", 7.298),
    ],
)  # fmt: skip
def test_shapes_have_the_parameters_that_olmo_says(name: str, billions: float) -> None:
    """7,298 million and 13,716 million are the sizes of OLMo 2's files, whose norms span all heads (0.3 million more a model);
    the 1B of this table has 18 layers."""
    case = runs(OLMO)[name]
    assert case.plan is not None
    assert case.plan.workload.model.parameters / 1e9 == pytest.approx(billions, rel=1e-3)


def test_each_microbatch_of_olmo_core_gathers_and_reduces_within_a_node() -> None:
    found = config(runs(OLMO)["olmo-3-7b-h100-g512-bf16"])
    assert (found.zero_stage, found.zero_shard_size, found.gradient_precision) == (3, 8, "fp32")


def test_steps_of_llm_c_have_half_a_million_or_a_million_tokens() -> None:
    tokens = {
        name: case.plan.workload.global_batch_size * case.plan.workload.seq_len
        for name, case in runs(LLM_C).items()
        if case.plan is not None
    }
    assert sorted(tokens.values()) == [524_288, 524_288, 524_288, 1_048_576]
    assert max(tokens, key=lambda name: tokens[name]) == "llm-c-1558m-h100-g8"


def test_short_sequences_on_alps_take_equally_long_for_each_microbatch() -> None:
    """So their host bounds them (docs/model.md)."""
    found = runs(ALPS)
    steps = [found[f"alps-qwen3-14b-g4-tp4-s{length}-fused"].measured_s or 0.0 for length in (512, 1024, 2048)]
    assert max(steps) / min(steps) < 1.02
    assert steps[0] == pytest.approx(256 * 512 / (4 * 611), rel=1e-4)
