"""Published config.json files become models of the published size, and faulty ones become one clear line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sim.errors import TopologyError
from sim.formats.huggingface import FAMILIES, read
from sim.workload.model import Model

LLAMA_2_7B = {
    "_name_or_path": "meta-llama/Llama-2-7b-hf",
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "max_position_embeddings": 4096,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 32,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "vocab_size": 32000,
}
MISTRAL_7B = {
    "architectures": ["MistralForCausalLM"],
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "model_type": "mistral",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "sliding_window": 4096,
    "tie_word_embeddings": False,
    "vocab_size": 32000,
}
MISTRAL_NEMO_12B = {
    **MISTRAL_7B,
    "head_dim": 128,
    "hidden_size": 5120,
    "max_position_embeddings": 131072,
    "num_hidden_layers": 40,
    "sliding_window": None,
    "vocab_size": 131072,
}
MIXTRAL_8X7B = {
    "architectures": ["MixtralForCausalLM"],
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "model_type": "mixtral",
    "num_attention_heads": 32,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "vocab_size": 32000,
}
QWEN2_7B = {
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_act": "silu",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "max_position_embeddings": 131072,
    "max_window_layers": 28,
    "model_type": "qwen2",
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "vocab_size": 152064,
}
QWEN3_8B = {
    "attention_bias": False,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "model_type": "qwen3",
    "num_attention_heads": 32,
    "num_hidden_layers": 36,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "vocab_size": 151936,
}
QWEN15_MOE_A27B = {
    "decoder_sparse_step": 1,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "model_type": "qwen2_moe",
    "moe_intermediate_size": 1408,
    "num_attention_heads": 16,
    "num_experts": 60,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 24,
    "num_key_value_heads": 16,
    "shared_expert_intermediate_size": 5632,
    "tie_word_embeddings": False,
    "vocab_size": 151936,
}
QWEN3_30B_A3B = {
    "decoder_sparse_step": 1,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "mlp_only_layers": [],
    "model_type": "qwen3_moe",
    "moe_intermediate_size": 768,
    "num_attention_heads": 32,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
    "vocab_size": 151936,
}
GPT2 = {
    "activation_function": "gelu_new",
    "architectures": ["GPT2LMHeadModel"],
    "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2",
    "n_ctx": 1024,
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
    "vocab_size": 50257,
}
GPT_NEOX_20B = {
    "architectures": ["GPTNeoXForCausalLM"],
    "hidden_act": "gelu_fast",
    "hidden_size": 6144,
    "intermediate_size": 24576,
    "max_position_embeddings": 2048,
    "model_type": "gpt_neox",
    "num_attention_heads": 64,
    "num_hidden_layers": 44,
    "rotary_pct": 0.25,
    "tie_word_embeddings": False,
    "vocab_size": 50432,
}
OPT_1_3B = {
    "_remove_final_layer_norm": False,
    "activation_function": "relu",
    "architectures": ["OPTForCausalLM"],
    "do_layer_norm_before": True,
    "ffn_dim": 8192,
    "hidden_size": 2048,
    "max_position_embeddings": 2048,
    "model_type": "opt",
    "num_attention_heads": 32,
    "num_hidden_layers": 24,
    "vocab_size": 50272,
    "word_embed_proj_dim": 2048,
}
OPT_6_7B = {**OPT_1_3B, "ffn_dim": 16384, "hidden_size": 4096, "num_hidden_layers": 32, "word_embed_proj_dim": 4096}
BLOOM_176B = {
    "architectures": ["BloomForCausalLM"],
    "attention_softmax_in_fp32": True,
    "model_type": "bloom",
    "n_embed": 14336,
    "n_layer": 70,
    "num_attention_heads": 112,
    "pretraining_tp": 4,
    "vocab_size": 250880,
}

LLAMA_AS_MODEL = Model(
    "meta-llama/Llama-2-7b-hf",
    layers=32,
    hidden=4096,
    heads=32,
    kv_heads=32,
    head_dim=128,
    ffn_hidden=11008,
    vocab=32000,
    mlp="swiglu",
    tied_embeddings=False,
)

# config, the model it means, the number of parameters of the checkpoint; counted with transformers 5.23 on torch's meta device
PUBLISHED = [
    (LLAMA_2_7B, LLAMA_AS_MODEL, 6_738_415_616),
    (
        MISTRAL_7B,
        Model(
            "Mistral-7B",
            layers=32,
            hidden=4096,
            heads=32,
            kv_heads=8,
            head_dim=128,
            ffn_hidden=14336,
            vocab=32000,
            mlp="swiglu",
            tied_embeddings=False,
        ),
        7_241_732_096,
    ),
    (
        MISTRAL_NEMO_12B,
        Model(
            "Mistral-Nemo-12B",
            layers=40,
            hidden=5120,
            heads=32,
            kv_heads=8,
            head_dim=128,
            ffn_hidden=14336,
            vocab=131072,
            mlp="swiglu",
            tied_embeddings=False,
        ),
        12_247_782_400,
    ),
    (
        MIXTRAL_8X7B,
        Model(
            "Mixtral-8x7B",
            layers=32,
            hidden=4096,
            heads=32,
            kv_heads=8,
            head_dim=128,
            ffn_hidden=14336,
            vocab=32000,
            mlp="swiglu",
            tied_embeddings=False,
            experts=8,
            experts_per_token=2,
        ),
        46_702_792_704,
    ),
    (
        QWEN2_7B,
        Model(
            "Qwen2-7B",
            layers=28,
            hidden=3584,
            heads=28,
            kv_heads=4,
            head_dim=128,
            ffn_hidden=18944,
            vocab=152064,
            mlp="swiglu",
            tied_embeddings=False,
        ),
        7_615_616_512,
    ),
    (
        QWEN3_8B,
        Model(
            "Qwen3-8B",
            layers=36,
            hidden=4096,
            heads=32,
            kv_heads=8,
            head_dim=128,
            ffn_hidden=12288,
            vocab=151936,
            mlp="swiglu",
            tied_embeddings=False,
        ),
        8_190_735_360,
    ),
    (
        QWEN15_MOE_A27B,
        Model(
            "Qwen1.5-MoE-A2.7B",
            layers=24,
            hidden=2048,
            heads=16,
            kv_heads=16,
            ffn_hidden=1408,
            vocab=151936,
            mlp="swiglu",
            tied_embeddings=False,
            experts=60,
            experts_per_token=4,
            shared_ffn_hidden=5632,
        ),
        14_315_784_192,
    ),
    (
        QWEN3_30B_A3B,
        Model(
            "Qwen3-30B-A3B",
            layers=48,
            hidden=2048,
            heads=32,
            kv_heads=4,
            head_dim=128,
            ffn_hidden=768,
            vocab=151936,
            mlp="swiglu",
            tied_embeddings=False,
            experts=128,
            experts_per_token=8,
        ),
        30_532_122_624,
    ),
    (
        GPT2,
        Model(
            "gpt2",
            layers=12,
            hidden=768,
            heads=12,
            kv_heads=12,
            head_dim=64,
            ffn_hidden=3072,
            vocab=50257,
            mlp="gelu",
            tied_embeddings=True,
            learned_positions=1024,
        ),
        124_439_808,
    ),
    (
        GPT_NEOX_20B,
        Model(
            "GPT-NeoX-20B",
            layers=44,
            hidden=6144,
            heads=64,
            kv_heads=64,
            head_dim=96,
            ffn_hidden=24576,
            vocab=50432,
            mlp="gelu",
            tied_embeddings=False,
        ),
        20_554_567_680,
    ),
    (
        OPT_1_3B,
        Model(
            "OPT-1.3B",
            layers=24,
            hidden=2048,
            heads=32,
            kv_heads=32,
            head_dim=64,
            ffn_hidden=8192,
            vocab=50272,
            mlp="gelu",
            tied_embeddings=True,
            learned_positions=2050,
        ),
        1_315_758_080,
    ),
    (
        OPT_6_7B,
        Model(
            "OPT-6.7B",
            layers=32,
            hidden=4096,
            heads=32,
            kv_heads=32,
            head_dim=128,
            ffn_hidden=16384,
            vocab=50272,
            mlp="gelu",
            tied_embeddings=True,
            learned_positions=2050,
        ),
        6_658_473_984,
    ),
    (
        BLOOM_176B,
        Model(
            "BLOOM-176B",
            layers=70,
            hidden=14336,
            heads=112,
            kv_heads=112,
            head_dim=128,
            ffn_hidden=57344,
            vocab=250880,
            mlp="gelu",
            tied_embeddings=True,
        ),
        176_247_271_424,
    ),
]
NAMES = [model.name for _, model, _ in PUBLISHED]


def write(folder: Path, config: object) -> Path:
    """A config.json in a folder, one key a line, sorted by key, as transformers writes it."""
    folder.mkdir(exist_ok=True, parents=True)
    file = folder / "config.json"
    file.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return file


def message(path: Path) -> str:
    """The text of the error that reading raises, with the folder of the file left out."""
    with pytest.raises(TopologyError) as caught:
        read(path)
    return str(caught.value).replace(f"{path.parent}/", "")


def without(config: dict[str, object], key: str) -> dict[str, object]:
    return {name: value for name, value in config.items() if name != key}


@pytest.mark.parametrize(("config", "model", "parameters"), PUBLISHED, ids=NAMES)
def test_published_config_becomes_its_model(tmp_path: Path, config: dict[str, object], model: Model, parameters: int) -> None:
    assert read(write(tmp_path / model.name, config)) == model


@pytest.mark.parametrize(("config", "model", "parameters"), PUBLISHED, ids=NAMES)
def test_model_has_the_published_number_of_parameters_within_a_thousandth(
    tmp_path: Path, config: dict[str, object], model: Model, parameters: int
) -> None:
    assert read(write(tmp_path / model.name, config)).parameters == pytest.approx(parameters, rel=1e-3)


def test_every_family_of_the_table_is_among_the_published_configs() -> None:
    assert {config["model_type"] for config, _, _ in PUBLISHED} == set(FAMILIES)


def test_a_folder_stands_for_the_config_in_it(tmp_path: Path) -> None:
    assert read(write(tmp_path, LLAMA_2_7B).parent) == LLAMA_AS_MODEL


def test_a_file_without_indentation_reads_the_same(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_2_7B, separators=(",", ":")))
    assert read(tmp_path) == LLAMA_AS_MODEL


def test_a_file_indented_by_tabs_reads_the_same(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_2_7B, indent="\t"))
    assert read(tmp_path) == LLAMA_AS_MODEL


@pytest.mark.parametrize("written", ["", None])
def test_an_empty_name_gives_way_to_the_name_of_the_folder(tmp_path: Path, written: str | None) -> None:
    assert read(write(tmp_path / "my-llama", {**LLAMA_2_7B, "_name_or_path": written})).name == "my-llama"


def test_a_bare_file_name_is_named_after_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write(tmp_path / "my-gpt", GPT2).parent)
    assert read("config.json").name == "my-gpt"


def test_llama_without_key_value_heads_has_one_for_each_head(tmp_path: Path) -> None:
    assert read(write(tmp_path, without(LLAMA_2_7B, "num_key_value_heads"))).kv_heads == 32


def test_null_key_value_heads_mean_one_for_each_head(tmp_path: Path) -> None:
    assert read(write(tmp_path, {**MISTRAL_7B, "num_key_value_heads": None})).kv_heads == 32


def test_null_head_dim_is_the_share_of_one_head(tmp_path: Path) -> None:
    assert read(write(tmp_path, {**QWEN2_7B, "head_dim": None})).head_dim == 128


def test_gpt2_null_n_inner_is_four_times_the_hidden_size(tmp_path: Path) -> None:
    assert read(write(tmp_path, {**GPT2, "n_inner": None})).ffn_hidden == 3072


def test_gpt2_n_inner_is_taken_where_it_is_given(tmp_path: Path) -> None:
    assert read(write(tmp_path, {**GPT2, "n_inner": 2048})).ffn_hidden == 2048


def test_bloom_may_spell_its_sizes_the_common_way(tmp_path: Path) -> None:
    common = {"model_type": "bloom", "hidden_size": 1024, "n_layer": 24, "n_head": 16, "vocab_size": 250880}
    assert read(write(tmp_path, common)).parameters == pytest.approx(559_214_592, rel=1e-3)


def test_qwen3_moe_may_spell_its_experts_as_transformers_5_does(tmp_path: Path) -> None:
    newer = {**without(QWEN3_30B_A3B, "num_experts"), "num_local_experts": 128}
    assert read(write(tmp_path, newer)).experts == 128


def test_tied_embeddings_of_the_file_win_over_the_family(tmp_path: Path) -> None:
    assert read(write(tmp_path, {**QWEN2_7B, "tie_word_embeddings": True})).tied_embeddings is True
    assert read(write(tmp_path, {**GPT2, "tie_word_embeddings": False})).tied_embeddings is False


@pytest.mark.parametrize("config", [LLAMA_2_7B, MISTRAL_7B, MIXTRAL_8X7B, QWEN2_7B, GPT_NEOX_20B])
def test_embeddings_are_apart_where_the_family_says_nothing_else(tmp_path: Path, config: dict[str, object]) -> None:
    assert read(write(tmp_path, without(config, "tie_word_embeddings"))).tied_embeddings is False


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
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "config.json").write_text(text)
    assert message(tmp_path / "config.json") == expected


KNOWN = "known: bloom, gpt2, gpt_neox, llama, mistral, mixtral, opt, qwen2, qwen2_moe, qwen3, qwen3_moe"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"hidden_size": 8}, f"config.json:1: model_type: this key is missing; it names the family; {KNOWN}"),
        ({"model_type": 7}, f"config.json:2: model_type: the name of a family is expected here, not 7; {KNOWN}"),
        ({"model_type": "lama"}, f"config.json:2: model_type: 'lama' is unknown; did you mean 'llama'? {KNOWN}"),
        ({"model_type": "t5"}, f"config.json:2: model_type: 't5' is unknown; {KNOWN}"),
        (
            {"model_type": "deepseek_v3"},
            "config.json:2: model_type: 'deepseek_v3' cannot be read: multi-head latent attention is not modelled",
        ),
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
            "config.json:8: intermediate_size: a whole number from 1 on is expected here, not null",
        ),
        (
            {**LLAMA_2_7B, "vocab_size": "32000"},
            "config.json:18: vocab_size: a whole number from 1 on is expected here, not '32000'",
        ),
        ({**LLAMA_2_7B, "vocab_size": True}, "config.json:18: vocab_size: a whole number from 1 on is expected here, not true"),
        (
            {**LLAMA_2_7B, "hidden_size": 4096.5},
            "config.json:7: hidden_size: a whole number from 1 on is expected here, not 4096.5",
        ),
        ({**GPT2, "n_layer": 0}, "config.json:11: n_layer: a whole number from 1 on is expected here, not 0"),
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
            "config.json:11: num_experts_per_tok: 9 is more than num_local_experts 8; write at most that many",
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
        "config.json:18: vocab_size: a whole number from 1 on is expected here, not -1",
    ]


def test_a_key_given_twice_is_refused(tmp_path: Path) -> None:
    text = write(tmp_path, GPT2).read_text().replace('"n_ctx": 1024', '"n_head": 16')
    (tmp_path / "config.json").write_text(text)
    assert message(tmp_path / "config.json").endswith(": n_head: key given twice; line 10 repeats it")
