"""What launch targets can express, as data."""

from __future__ import annotations

import pytest

from holmes_sim import capabilities, exporters
from holmes_sim.printing.catalogues import PROPERTY_WORDS
from tests import features

ALIKE = {
    "virtual stages": ("schedules", "interleaved"),
    "schedule gpipe": ("schedules", "gpipe"),
    "schedule 1f1b-deepspeed": ("schedules", "1f1b-deepspeed"),
    "schedule zb-h1": ("schedules", "zb-h1"),
    "schedule zb-h2": ("schedules", "zb-h2"),
    "replicas of unlike microbatches": ("unlike_replicas", "num_microbatches"),
    "unlike pipelines": ("unlike_replicas", "pipelines"),
    "context parallel": ("degrees", "cp"),
    "experts, ep 1": ("models", "experts"),
    "ZeRO 0": ("zero_stages_in_pipelines", 0),
    "ZeRO 2": ("zero_stages_in_pipelines", 2),
    "ZeRO 3": ("zero_stages_in_pipelines", 3),
    "recompute full": ("recompute_in_pipelines", "full"),
    "fp16": ("precisions", "fp16"),
    "gelu, not gated": ("models", "gelu"),
    "learned positions": ("models", "learned_positions"),
    "grouped queries": ("models", "kv_heads"),
}
"""Feature of the table of docs/export.md -> the property and value that say the same."""


def test_megatron():
    found = capabilities.of("megatron")
    assert found["degrees"] == ("tp", "pp", "dp", "cp", "ep", "etp", "vpp")
    assert found["schedules"] == ("1f1b", "interleaved")
    assert (found["zero_stages"], found["zero_stages_in_pipelines"]) == ((0, 1, 2, 3), (0, 1))
    assert found["offload"] == ("optimizer", "activations", "optimizer+activations")
    assert (found["unlike_stages"], found["unlike_replicas"]) == ((), ())
    assert found["precisions"] == ("fp32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4")


def test_deepspeed():
    found = capabilities.of("deepspeed")
    assert (found["degrees"], found["schedules"]) == (("tp", "pp", "dp"), ("1f1b-deepspeed",))
    assert (found["zero_stages"], found["zero_stages_in_pipelines"]) == ((1, 2, 3), (1,))
    assert "recompute_layers" in found["recompute"]
    assert "recompute_layers" not in found["recompute_in_pipelines"]
    assert {"mla", "mtp_layers", "sliding_window", "n_group"} <= set(found["models"])


def test_torchtitan():
    found = capabilities.of("torchtitan")
    assert found["precisions"] == ("fp32", "bf16", "fp8", "mxfp8", "nvfp4")
    assert found["models"] == (
        "swiglu", "tied_embeddings", "experts", "kv_heads", "shared_ffn_hidden", "dense_layers", "n_group", "mla", "mtp_layers",
        "sliding_window", "attention_sinks",
    )  # fmt: skip
    assert "mla" not in capabilities.of("holmes")["models"]


def test_stages_may_differ_for_flagscale_and_in_all_ways_for_torchrun():
    assert capabilities.of("flagscale")["unlike_stages"] == ("tp", "dp", "ep", "etp", "recompute_layers")
    assert capabilities.of("torchrun")["unlike_stages"] == tuple(capabilities.UNLIKE)


@pytest.mark.parametrize("target", exporters.names())
def test_they_say_what_exports_of_whole_plans_say(target):
    found, schedule = capabilities.of(target), features.schedule(target)
    for feature in features.FEATURES:
        if feature.name in ALIKE:
            plan = features.plan_of(feature, schedule)
            name, value = ALIKE[feature.name]
            assert (value in found[name]) is not any(exporters.unsupported(target, plan)), (feature.name, target)


def test_every_property_has_a_name_in_the_table():
    assert all(tuple(capabilities.of(name)) == tuple(PROPERTY_WORDS) for name in exporters.names())
