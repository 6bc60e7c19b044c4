"""Runs of the sixth batch: how their steps follow from what is published, and the facts of their software."""

from __future__ import annotations

import pytest

from holmes_sim import validation
from tests.published_runs import check_file, config, runs

TORCHTUNE, AUTOMODEL = "new_software/torchtune", "new_software/automodel"


@pytest.mark.parametrize(("name", "number"), [(TORCHTUNE, 12), (AUTOMODEL, 7)])
def test_every_run_can_be_simulated_with_facts_of_its_software(name: str, number: int) -> None:
    check_file(name, number)


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("torchtune-3b-a100-g1-packed", 7_075), ("torchtune-3b-a100-g1-compile", 8_998),
        ("torchtune-3b-a100-g1-chunked", 9_174), ("torchtune-3b-a100-g1-recomputed", 7_210),
        ("torchtune-3b-a100-g1-fused-optimizer", 7_309),
        ("torchtune-3b-a100-g1-offloaded", 7_301), ("torchtune-3b-a100-g1-lora", 8_210), ("torchtune-3b-a100-g1-qlora", 8_035),
        ("torchtune-8b-rtx-4090-g1-lora", 3_083), ("torchtune-8b-rtx-4090-g1-qlora", 2_413),
        ("torchtune-70b-a100-g8-lora", 3_497), ("torchtune-405b-a100-g8-qlora", 653),
    ],
)  # fmt: skip
def test_tokens_per_second_of_torchtune_say_its_seconds(name: str, rate: int) -> None:
    """Two tables of torchtune's README (bd2a0fc7), in tokens per second of all devices."""
    case = runs(TORCHTUNE)[name]
    assert case.plan is not None
    workload = case.plan.workload
    assert case.measured_s == pytest.approx(workload.global_batch_size * workload.seq_len / rate, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "devices", "rate"),
    [
        ("automodel-llama3-70b-h100-g64-pretrain", 64, 866.77), ("automodel-llama3-8b-h100-g1-lora", 1, 12472.87),
        ("automodel-qwen2.5-7b-h100-g1-lora", 1, 14110.05), ("automodel-llama3-70b-h100-g8-tp2-lora", 8, 1091.85),
        ("automodel-qwen2.5-32b-h100-g8-tp2-lora", 8, 2250.31), ("automodel-llama3-70b-h100-g16-tp2-lora", 16, 984.85),
        ("automodel-qwen2.5-32b-h100-g16-tp2-lora", 16, 2072.89),
    ],
)  # fmt: skip
def test_seconds_of_automodel_agree_with_its_tokens_per_second(name: str, devices: int, rate: float) -> None:
    """The table of NeMo AutoModel (36044ad3) has both, the seconds to two digits."""
    case = runs(AUTOMODEL)[name]
    assert case.plan is not None and case.plan.config.world_size == devices
    workload = case.plan.workload
    assert case.measured_s == pytest.approx(workload.global_batch_size * workload.seq_len / (rate * devices), rel=2e-3)


def test_only_70b_runs_asynchronous_tensor_parallelism() -> None:
    """Its recipes have sequence_parallel and enable_async_tensor_parallel, those of 32B neither."""
    found = {name: config(case) for name, case in runs(AUTOMODEL).items() if "tp2" in name}
    assert {name for name, facts in found.items() if facts.tp_overlap} == {
        "automodel-llama3-70b-h100-g8-tp2-lora", "automodel-llama3-70b-h100-g16-tp2-lora",
    }  # fmt: skip
    assert all(facts.tp_overlap == facts.sequence_parallel for facts in found.values())


def test_adapters_of_automodel_move_what_was_counted_in_its_source() -> None:
    """PEFT's sums move 7 outputs and 3 inputs of each projection. AutoModel's move 3 and 3, and its own models join the inputs
    of queries, keys and values and of gate and up; dropout behind an adapter moves 5 outputs more."""
    h, kv, f = 8192, 1024, 28672  # Llama 3 70B
    outputs = h + 2 * kv + h + 2 * f + h
    assert (3 * outputs + 3 * (3 * h + f)) / (7 * outputs + 3 * (6 * h + f)) == pytest.approx(0.5, abs=0.005)
    h, kv, f = 3584, 512, 18944  # Qwen2.5 7B
    outputs, inputs = h + 2 * kv + h + 2 * f + h, 6 * h + f
    assert (3 * outputs + 3 * inputs) / (7 * outputs + 3 * inputs) == pytest.approx(0.58, abs=0.005)
    h, kv, f = 4096, 1024, 14336  # Llama 3 8B
    outputs, inputs = h + 2 * kv + h + 2 * f + h, 6 * h + f
    assert (8 * outputs + 3 * inputs) / (7 * outputs + 3 * inputs) == pytest.approx(1.1, abs=0.005)
    found = {case.id: dict(validation.stack_of(case, "default")[1].passes)["adapter"] for case in runs(AUTOMODEL).values()}
    assert found["automodel-llama3-70b-h100-g8-tp2-lora"] == 0.5
    assert found["automodel-qwen2.5-7b-h100-g1-lora"] == 0.58
    assert found["automodel-llama3-8b-h100-g1-lora"] == 1.1
