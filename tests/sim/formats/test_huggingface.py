"""A config.json becomes a model: its name, defaults of the families, and alternative spellings of keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sim.formats.huggingface import read
from tests.sim.formats.huggingface_configs import (
    CARDS,
    GPT2,
    GPT_NEOX_20B,
    LLAMA_2_7B,
    LLAMA_AS_MODEL,
    MISTRAL_7B,
    MIXTRAL_8X7B,
    NAMES_OF_CARDS,
    QWEN2_7B,
    QWEN3_30B_A3B,
    dense,
    shape,
    without,
    write,
)


def test_a_folder_is_read_as_the_config_in_it(tmp_path: Path) -> None:
    assert shape(read(write(tmp_path, LLAMA_2_7B).parent)) == LLAMA_AS_MODEL


def test_a_file_without_indentation_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_2_7B, separators=(",", ":")))
    assert shape(read(tmp_path)) == LLAMA_AS_MODEL


def test_a_file_indented_by_tabs_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_2_7B, indent="\t"))
    assert shape(read(tmp_path)) == LLAMA_AS_MODEL


@pytest.mark.parametrize("written", ["", None])
def test_without_a_name_the_model_is_named_after_its_folder(tmp_path: Path, written: str | None) -> None:
    assert read(write(tmp_path / "my-llama", {**LLAMA_2_7B, "_name_or_path": written})).name == "my-llama"


def test_a_bare_file_name_is_named_after_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write(tmp_path / "my-gpt", GPT2).parent)
    assert read("config.json").name == "my-gpt"


def test_llama_without_key_value_heads_has_one_for_each_head(tmp_path: Path) -> None:
    assert read(write(tmp_path, without(LLAMA_2_7B, "num_key_value_heads"))).kv_heads == 32


def test_null_key_value_heads_mean_one_for_each_head(tmp_path: Path) -> None:
    assert read(write(tmp_path, {**MISTRAL_7B, "num_key_value_heads": None})).kv_heads == 32


def test_null_head_dim_is_hidden_size_over_heads(tmp_path: Path) -> None:
    assert read(write(tmp_path, {**QWEN2_7B, "head_dim": None})).head_dim == 128


def test_gpt2_null_n_inner_is_four_times_the_hidden_size(tmp_path: Path) -> None:
    assert read(write(tmp_path, {**GPT2, "n_inner": None})).ffn_hidden == 3072


def test_gpt2_n_inner_is_the_width_of_the_mlp(tmp_path: Path) -> None:
    assert read(write(tmp_path, {**GPT2, "n_inner": 2048})).ffn_hidden == 2048


def test_bloom_reads_the_common_spelling_of_its_sizes(tmp_path: Path) -> None:
    common = {"model_type": "bloom", "hidden_size": 1024, "n_layer": 24, "n_head": 16, "vocab_size": 250880}
    assert read(write(tmp_path, common)).parameters == pytest.approx(559_214_592, rel=1e-3)


def test_qwen3_moe_reads_the_number_of_experts_under_the_key_of_transformers_5(tmp_path: Path) -> None:
    newer = {**without(QWEN3_30B_A3B, "num_experts"), "num_local_experts": 128}
    assert read(write(tmp_path, newer)).experts == 128


def test_tied_embeddings_of_the_file_override_the_default_of_the_family(tmp_path: Path) -> None:
    assert read(write(tmp_path, {**QWEN2_7B, "tie_word_embeddings": True})).tied_embeddings is True
    assert read(write(tmp_path, {**GPT2, "tie_word_embeddings": False})).tied_embeddings is False


@pytest.mark.parametrize("config", [LLAMA_2_7B, MISTRAL_7B, MIXTRAL_8X7B, QWEN2_7B, GPT_NEOX_20B])
def test_embeddings_are_not_tied_by_default(tmp_path: Path, config: dict[str, object]) -> None:
    assert read(write(tmp_path, without(config, "tie_word_embeddings"))).tied_embeddings is False


@pytest.mark.parametrize(
    ("config", "billions"),
    CARDS,
    ids=NAMES_OF_CARDS,
)
def test_small_models_have_the_parameters_of_their_cards(tmp_path: Path, config: dict[str, object], billions: float) -> None:
    """Sizes of the public config.json files and numbers of the model cards, both from memory."""
    assert read(write(tmp_path, config)).parameters / 1e9 == pytest.approx(billions, rel=2e-3)


@pytest.mark.parametrize(("more", "every"), [({}, 6), ({"sliding_window_pattern": 4}, 4)])
def test_gemma3_has_full_attention_in_every_sixth_layer(tmp_path: Path, more: dict[str, int], every: int) -> None:
    config = dense("gemma3_text", 256, 12, 4, 512, 1024, num_key_value_heads=1, head_dim=64, sliding_window=512, **more)
    model = read(write(tmp_path, config))
    assert (model.sliding_window, model.sliding_window_every, model.full_attention_every) == (512, 1, every)


def test_every_second_layer_of_gemma2_has_a_window(tmp_path: Path) -> None:
    model = read(write(tmp_path, dense("gemma2", 256, 4, 4, 512, 1024, num_key_value_heads=2, head_dim=64, sliding_window=64)))
    assert (model.sliding_window, model.sliding_window_every) == (64, 2)
