"""Facts of a config.json that only launches need."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.errors import TopologyError
from sim.formats import catalog
from sim.formats.huggingface import read
from tests.sim.formats.huggingface_configs import GPT2, GPT_NEOX_20B, LLAMA_2_7B, QWEN2_7B, write

LLAMA_3_SCALING = {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "rope_type": "llama3"}


def known(tmp_path: Path, config: dict[str, object]) -> dict[str, float | str | bool]:
    return read(write(tmp_path, config)).launch.known()


def test_a_llama_says_its_positions_norms_and_biases(tmp_path: Path) -> None:
    config = {**LLAMA_2_7B, "rope_theta": 500000.0, "rope_scaling": LLAMA_3_SCALING, "initializer_range": 0.02}
    assert known(tmp_path, config) == {
        "rope_theta": 500000.0, "rope_scaling": "llama3", "rope_factor": 8.0, "norm_epsilon": 1e-05, "qk_norm": False,
        "qkv_bias": False, "init_std": 0.02,
    }  # fmt: skip


def test_the_catalogue_agrees_with_a_published_config(tmp_path: Path) -> None:
    assert known(tmp_path, LLAMA_2_7B) == catalog.model("llama-2-7b").launch.known()


def test_keys_of_transformers_5(tmp_path: Path) -> None:
    found = known(tmp_path, {**QWEN2_7B, "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"}})
    assert (found["rope_theta"], found["rope_scaling"], found["qkv_bias"]) == (1000000.0, "none", True)


def test_keys_of_gpt_neox(tmp_path: Path) -> None:
    found = known(tmp_path, {**GPT_NEOX_20B, "rotary_emb_base": 10000, "rotary_pct": 0.25})
    assert (found["rope_theta"], found["rotary_fraction"]) == (10000.0, 0.25)


def test_what_the_file_does_not_say_is_not_known(tmp_path: Path) -> None:
    assert "rope_theta" not in known(tmp_path, GPT2)


def test_a_fraction_above_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match=r"config\.json:\d+: rotary_pct: rotary_fraction 2 must be at most 1"):
        read(write(tmp_path, {**GPT_NEOX_20B, "rotary_pct": 2}))


def test_a_wrong_value_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match=r"config\.json:\d+: rope_theta: a number above 0 is expected here, not 'high'"):
        read(write(tmp_path, {**LLAMA_2_7B, "rope_theta": "high"}))
