"""A config.json that cannot be read raises one line for each fault, with file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.errors import TopologyError
from sim.formats.huggingface import read
from tests.sim.formats.huggingface_configs import (
    GPT2,
    LLAMA_2_7B,
    MISTRAL_7B,
    MIXTRAL_8X7B,
    OPT_1_3B,
    QWEN3_8B,
    QWEN3_30B_A3B,
    without,
    write,
)


def message(path: Path) -> str:
    """The text of the error that reading raises, with the folder of the file left out."""
    with pytest.raises(TopologyError) as caught:
        read(path)
    return str(caught.value).replace(f"{path.parent}/", "")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert message(tmp_path / "config.json") == "config.json: no such file"


def test_a_folder_without_a_config_names_the_file_that_is_missing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert message(tmp_path / "empty") == "empty/config.json: no such file"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '{\n  "model_type": "llama",\n  "hidden_size": ]\n}\n',
            "config.json:3: not well-formed JSON: did not find expected node content",
        ),
        ("[1, 2]\n", "config.json:1: a mapping of keys is expected here, not list; a config.json starts with '{'"),
        ("", "config.json:1: a mapping of keys is expected here, not an empty file; a config.json starts with '{'"),
    ],
)
def test_a_file_that_is_not_a_mapping_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "config.json").write_text(text)
    assert message(tmp_path / "config.json") == expected


KNOWN = (
    "known: bloom, deepseek_v2, deepseek_v3, gemma, gemma2, gemma3_text, glm, glm4, glm4_moe, gpt2, gpt_neox, "
    "gpt_oss, grok-1, kimi_k2, "
    "llama, llama4_text, mistral, mixtral, opt, phi, phi3, qwen2, qwen2_moe, qwen3, qwen3_moe"
)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"hidden_size": 8}, f"config.json:1: model_type: this key is missing; it names the family; {KNOWN}"),
        ({"model_type": 7}, f"config.json:2: model_type: the name of a family is expected here, not 7; {KNOWN}"),
        ({"model_type": "lama"}, f"config.json:2: model_type: 'lama' is unknown; did you mean 'llama'? {KNOWN}"),
        ({"model_type": "t5"}, f"config.json:2: model_type: 't5' is unknown; {KNOWN}"),
        (
            {"model_type": "llava", "text_config": LLAMA_2_7B},
            (
                "config.json:3: text_config: a model of text and images or sound is not modelled; "
                "write its language model as a config.json of its own"
            ),
        ),
    ],
)
def test_a_family_that_cannot_be_read_is_refused(tmp_path: Path, config: dict[str, object], expected: str) -> None:
    assert message(write(tmp_path, config)) == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            without(LLAMA_2_7B, "num_hidden_layers"),
            "config.json:1: num_hidden_layers: this key is missing; a config.json of family llama gives a whole number here",
        ),
        (
            without(OPT_1_3B, "ffn_dim"),
            "config.json:1: ffn_dim: this key is missing; a config.json of family opt gives a whole number here",
        ),
        (
            without(MISTRAL_7B, "num_key_value_heads"),
            (
                "config.json:1: num_key_value_heads: this key is missing; "
                "a config.json of family mistral gives a whole number here"
            ),
        ),
        (
            without(QWEN3_8B, "head_dim"),
            "config.json:1: head_dim: this key is missing; a config.json of family qwen3 gives a whole number here",
        ),
        (
            {**LLAMA_2_7B, "intermediate_size": None},
            "config.json:8: intermediate_size: a whole number of at least 1 is expected here, not null",
        ),
        (
            {**LLAMA_2_7B, "vocab_size": "32000"},
            "config.json:18: vocab_size: a whole number of at least 1 is expected here, not '32000'",
        ),
        (
            {**LLAMA_2_7B, "vocab_size": True},
            "config.json:18: vocab_size: a whole number of at least 1 is expected here, not true",
        ),
        (
            {**LLAMA_2_7B, "hidden_size": 4096.5},
            "config.json:7: hidden_size: a whole number of at least 1 is expected here, not 4096.5",
        ),
        ({**GPT2, "n_layer": 0}, "config.json:11: n_layer: a whole number of at least 1 is expected here, not 0"),
        (
            {**LLAMA_2_7B, "tie_word_embeddings": "no"},
            "config.json:16: tie_word_embeddings: true or false is expected here, not 'no'",
        ),
        ({**LLAMA_2_7B, "_name_or_path": 7}, "config.json:2: _name_or_path: a text is expected here, not 7"),
    ],
)
def test_a_missing_or_mistyped_value_is_named_with_its_line(tmp_path: Path, config: dict[str, object], expected: str) -> None:
    assert message(write(tmp_path, config)) == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            {**LLAMA_2_7B, "num_attention_heads": 30, "num_key_value_heads": 30},
            "config.json:11: num_attention_heads: 30 does not divide hidden_size 4096; write a divisor of it",
        ),
        ({**GPT2, "n_head": 7}, "config.json:10: n_head: 7 does not divide n_embd 768; write a divisor of it"),
        (
            {**MISTRAL_7B, "num_key_value_heads": 5},
            "config.json:12: num_key_value_heads: 5 does not divide num_attention_heads 32; write a divisor of it",
        ),
        (
            {**MIXTRAL_8X7B, "num_experts_per_tok": 9},
            "config.json:11: num_experts_per_tok: 9 is more than num_local_experts 8",
        ),
        (
            {**OPT_1_3B, "hidden_size": 1024, "word_embed_proj_dim": 512},
            (
                "config.json:15: word_embed_proj_dim: 512 is not hidden_size 1024; "
                "word embeddings of another width (opt-350m) are not modelled"
            ),
        ),
        (
            {**QWEN3_30B_A3B, "decoder_sparse_step": 2},
            "config.json:2: decoder_sparse_step: 2 mixes dense and expert layers; only equal layers are modelled, 1 here",
        ),
        (
            {**QWEN3_30B_A3B, "mlp_only_layers": [0]},
            "config.json:7: mlp_only_layers: [0] mixes dense and expert layers; only equal layers are modelled, [] here",
        ),
    ],
)
def test_values_that_do_not_fit_together_are_refused(tmp_path: Path, config: dict[str, object], expected: str) -> None:
    assert message(write(tmp_path, config)) == expected


def test_every_fault_of_a_file_is_reported_at_once(tmp_path: Path) -> None:
    assert message(write(tmp_path, {**without(GPT2, "n_head"), "vocab_size": -1})).splitlines() == [
        "config.json:1: n_head: this key is missing; a config.json of family gpt2 gives a whole number here",
        "config.json:18: vocab_size: a whole number of at least 1 is expected here, not -1",
    ]


def test_a_key_given_twice_is_refused(tmp_path: Path) -> None:
    text = write(tmp_path, GPT2).read_text().replace('"n_ctx": 1024', '"n_head": 16')
    (tmp_path / "config.json").write_text(text)
    assert message(tmp_path / "config.json").endswith(": n_head: key given twice; line 10 repeats it")
