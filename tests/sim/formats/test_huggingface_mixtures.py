"""config.json files of mixtures of experts become models with the parameters of their model cards."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.errors import TopologyError
from sim.formats import catalog
from sim.formats.huggingface import read
from sim.workload.model import Model
from tests.sim.formats import mixture_configs as configs
from tests.sim.formats.huggingface_configs import shape, write

# A config, and billions of parameters that its model card or report gives, without layers that predict further tokens.
CARDS = [
    (configs.DEEPSEEK_V3, 671, 37),
    (configs.DEEPSEEK_V2, 236, 21),
    (configs.DEEPSEEK_V2_LITE, 15.7, 2.4),
    (configs.KIMI_K2, 1026, 32),
    (configs.GPT_OSS_120B, 116.83, 5.13),
    (configs.GPT_OSS_20B, 20.91, 3.61),
    (configs.LLAMA_4_MAVERICK, 400, 17),
    (configs.QWEN3_235B, 235, 22),
]
NAMES = [f"{config['model_type']} {billions}" for config, billions, _ in CARDS]


@pytest.mark.parametrize(("config", "billions", "active"), CARDS, ids=NAMES)
def test_a_model_has_the_parameters_of_its_card(
    tmp_path: Path, config: dict[str, object], billions: float, active: float
) -> None:
    model = read(write(tmp_path, config))
    assert model.parameters == pytest.approx(billions * 1e9, rel=5e-3)
    used = sum(
        number * kind.expert_parameters * (1 - kind.experts_per_token / kind.experts)
        for number, kind in model.kinds(0, model.layers)
        if kind.experts
    )
    counts = [model.parameters - used, model.parameters - used - model.embedding_parameters]
    assert any(count == pytest.approx(active * 1e9, rel=0.03) for count in counts), "some cards leave out the embedding"


def test_grok_1_has_the_parameters_of_its_shape(tmp_path: Path) -> None:
    """xAI says 314 B; its shape has 315.7 B, the embedding once."""
    assert read(write(tmp_path, configs.GROK_1)).parameters == pytest.approx(315.7e9, rel=1e-3)


def test_glm_4_5_has_the_layers_and_the_width_of_its_config(tmp_path: Path) -> None:
    """Its card says 355 B, with or without the layer that predicts a further token; here 352.8 B without it."""
    model = read(write(tmp_path, configs.GLM_4_5))
    assert [(number, kind.experts, kind.ffn_hidden) for number, kind in model.kinds(0, 92)] == [(3, 0, 12288), (89, 160, 1536)]
    assert (model.shared_ffn_hidden, model.mtp_layers, model.attention) == (1536, 1, "standard")
    assert model.parameters == pytest.approx(352.8e9, rel=1e-3)


def test_layers_of_deepseek_v3(tmp_path: Path) -> None:
    model = read(write(tmp_path / "deepseek-v3", configs.DEEPSEEK_V3))
    assert shape(model) == Model(
        "deepseek-v3", layers=61, hidden=7168, heads=128, kv_heads=128, ffn_hidden=2048, vocab=129280, mlp="swiglu",
        tied_embeddings=False, experts=256, experts_per_token=8, shared_ffn_hidden=2048, dense_layers=3, dense_ffn_hidden=18432,
        attention="mla", q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
        mtp_layers=1, n_group=8, topk_group=4,
    )  # fmt: skip
    assert (model.head_dim, model.query_size, model.value_size) == (192, 24576, 16384)
    assert [(number, kind.experts) for number, kind in model.kinds(2, 5)] == [(1, 0), (2, 256)]


@pytest.mark.parametrize(("config", "name", "groups"), [
    (configs.DEEPSEEK_V3, "deepseek-v3", (8, 4)),
    (configs.DEEPSEEK_V2, "deepseek-v2", (8, 3)),
    (configs.KIMI_K2, "kimi-k2", (1, 1)),
    (configs.DEEPSEEK_V2_LITE, None, (1, 1)),
    (configs.DEEPSEEK_V2 | {"topk_method": "greedy"}, None, (1, 1)),
    (configs.DEEPSEEK_V3 | {"n_group": None, "topk_group": None}, None, (1, 1)),
    (configs.GLM_4_5 | {"n_group": 4, "topk_group": 4}, None, (1, 1)),
])  # fmt: skip
def test_groups_from_which_a_token_takes_its_experts(
    tmp_path: Path, config: dict[str, object], name: str | None, groups: tuple[int, int]
) -> None:
    """Of one group, or of all, they are no limit; `topk_method` greedy has none."""
    found = [read(write(tmp_path, config)), *([catalog.model(name)] if name else ())]
    assert [(model.n_group, model.topk_group) for model in found] == [groups] * len(found)


def test_layers_of_gpt_oss_and_llama_4_alternate(tmp_path: Path) -> None:
    windowed = read(write(tmp_path, configs.GPT_OSS_20B))
    assert [(number, kind.sliding_window) for number, kind in windowed.kinds(0, 24)] == [(12, 128), (12, 0)]
    assert windowed.kinds(1, 2)[0][1].sliding_window == 0, "the first layer has the window"
    assert windowed.attention_sinks and not read(write(tmp_path, configs.QWEN3_235B)).attention_sinks
    mixed = read(write(tmp_path, configs.LLAMA_4_MAVERICK))
    assert [(number, kind.experts) for number, kind in mixed.kinds(0, 48)] == [(24, 0), (24, 128)]
    assert mixed.kinds(1, 2)[0][1].experts == 128, "every second layer, from the second on"


@pytest.mark.parametrize(("changes", "line"), [
    ({"kv_lora_rank": None},
     "config.json:5: kv_lora_rank: a whole number of at least 1 is expected here, not null"),
    ({"n_group": 0}, "config.json:9: n_group: a whole number of at least 1 is expected here, not 0"),
    ({"topk_group": 9}, "config.json:1: topk_group must be between 1 and n_group 8, not 9"),
    ({"n_group": 7}, "config.json:1: n_group 7 does not divide experts 256 into equal groups"),
    ({"n_group": 64, "topk_group": 1},
     "config.json:1: topk_group 1 of n_group 64 has 4 experts, fewer than experts_per_token"),
    ({"first_k_dense_replace": 61}, "config.json:1: dense_layers 61 leaves none of 61 layers with experts"),
])  # fmt: skip
def test_a_wrong_number_is_one_line(tmp_path: Path, changes: dict[str, object], line: str) -> None:
    file = write(tmp_path, configs.DEEPSEEK_V3 | changes)
    with pytest.raises(TopologyError) as caught:
        read(file)
    assert str(caught.value).endswith(line)
