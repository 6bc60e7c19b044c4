"""Published config.json files become models of the published size."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.formats.huggingface import FAMILIES, read
from sim.workload.model import Model
from tests.sim.formats import mixture_configs
from tests.sim.formats.huggingface_configs import (
    BLOOM_176B,
    CARDS,
    GPT2,
    GPT_NEOX_20B,
    LLAMA_2_7B,
    LLAMA_AS_MODEL,
    MISTRAL_7B,
    MISTRAL_NEMO_12B,
    MIXTRAL_8X7B,
    OPT_1_3B,
    OPT_6_7B,
    QWEN2_7B,
    QWEN3_8B,
    QWEN3_30B_A3B,
    QWEN15_MOE_A27B,
    shape,
    write,
)

# A config, its model, and the number of parameters of the checkpoint (counted with transformers 5.23 on torch's meta device).
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


@pytest.mark.parametrize(("config", "model", "parameters"), PUBLISHED, ids=NAMES)
def test_published_config_becomes_its_model(tmp_path: Path, config: dict[str, object], model: Model, parameters: int) -> None:
    assert shape(read(write(tmp_path / model.name, config))) == model


@pytest.mark.parametrize(("config", "model", "parameters"), PUBLISHED, ids=NAMES)
def test_model_has_the_published_number_of_parameters_within_a_thousandth(
    tmp_path: Path, config: dict[str, object], model: Model, parameters: int
) -> None:
    assert read(write(tmp_path / model.name, config)).parameters == pytest.approx(parameters, rel=1e-3)


def test_every_family_of_the_table_is_among_the_published_configs() -> None:
    mixtures = {
        value["model_type"] for value in vars(mixture_configs).values() if isinstance(value, dict) and "model_type" in value
    }
    cards = {config["model_type"] for config, _ in CARDS}
    assert {config["model_type"] for config, _, _ in PUBLISHED} | mixtures | cards == set(FAMILIES)
