"""DualPipeV of FlagScale: its flags, by hand, and what is refused; its own parser reads exports in tests/peers/flagscale.py."""

from __future__ import annotations

import pytest
import yaml

from holmes_sim import exporters
from holmes_sim.exporters import flagscale
from tests import features

FOUR = {"pp": 4, "dp": 1, "num_microbatches": (16,), "ep": 2}


def plan_of(config=(), layers=(), model=features.EXPERTS, **facts):
    return features.plan_of(features.Feature("", features.PAIRED | dict(config), layers=layers, model=model, **facts))


def refusals(plan):
    return list(exporters.unsupported("flagscale", plan))


def system(plan):
    return yaml.safe_load(flagscale.launch(plan).files["conf/train/plan.yaml"].content)["system"]


@pytest.mark.parametrize(
    ("config", "layers", "flags"),
    [
        ({}, (6, 6, 6, 6), {}),
        ({}, (7, 5, 5, 7), {"decoder_first_pipeline_num_layers": 14, "decoder_last_pipeline_num_layers": 10}),
        (FOUR, (3,) * 8, {}),
        (FOUR, (6, 2, 2, 2, 2, 2, 2, 6), {"decoder_first_pipeline_num_layers": 12}),
        (FOUR, (2, 3, 3, 4, 4, 3, 3, 2), {"decoder_first_pipeline_num_layers": 4, "decoder_last_pipeline_num_layers": 8}),
    ],
)
def test_the_schedule_and_the_layers_of_ranks_that_differ_are_flags(config, layers, flags):
    plan = plan_of(config, layers)
    assert refusals(plan) == []
    written = system(plan)
    assert written["use_dualpipev"] and written["moe_fb_overlap"]
    assert {key: value for key, value in written.items() if key.startswith("decoder")} == flags
    assert not {"pipeline_model_parallel_layout", "overlap_grad_reduce", "overlap_param_gather"} & set(written)


def test_a_launch_says_where_it_differs_from_the_step_of_the_plan():
    said = flagscale.launch(plan_of()).assumed
    assert (
        "Schedule dualpipev: FlagScale waits for most messages outside of pairs, and computes weight gradients with each "
        "backward; in the plan messages overlap compute, and some weight gradients of the cool-down come later."
    ) in said
    assert not any("dualpipev" in line for line in flagscale.launch(features.plan_of(features.FEATURES[0])).assumed)


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        ({"config": {"ep": 1}}, "with ep 1: its parser has it for experts over ranks only; ep 2 or more"),
        ({"config": {"overlap_grad_reduce": True}},
         "with overlap_grad_reduce or overlap_param_gather: its parser refuses them; both false"),
        ({"config": {"dispatcher": "deepep"}},
         "with dispatcher deepep: its pairs have an all_to_all of their own; dispatcher alltoall"),
        ({"config": {"recompute": "full"}}, "with recompute full: forwards of its pairs keep all activations; recompute none"),
        ({"config": {"recompute": "selective", "recompute_modules": ("layernorm", "moe_act")}},
         "with recompute_modules layernorm: its pairs run layers in parts, and keep them; core_attn, mla_up_proj, moe_act"),
        ({"config": {"overlap_shared_experts": True}, "model": features.EXPERTS | {"shared_ffn_hidden": 3072}},
         "with overlap_shared_experts: its parser refuses it; without it"),
        ({"model": features.LITE | {"q_lora_rank": 768}},
         "with q_lora_rank 768: its backward knows queries from one product only; 0"),
        ({"model": features.LITE | {"mtp_layers": 1}}, "with mtp_layers 1: its parser refuses them; 0"),
        ({"precision": "fp8", **features.HOPPER}, "with precision fp8: passes outside of its pairs are in bf16; bf16"),
        ({"precision": "fp16"},
         "with experts one after the other: they cannot delay weight gradients; bf16, and experts without biases"),
    ],
)  # fmt: skip
def test_what_its_pairs_cannot_run_is_refused(facts, line):
    assert f"schedule dualpipev {line}" in refusals(plan_of(**facts))


@pytest.mark.parametrize(
    ("config", "layers", "line"),
    [
        ({}, (6, 6, 5, 7),
         "stages of pipeline rank 0 of 6 and 7 layers: it halves a rank's layers; equally many"),
        (FOUR, (3, 2, 4, 3, 3, 4, 2, 3),
         "layers 4, 8 of ranks between the first and the last: it divides them equally; ranks with equally many"),
    ],
)  # fmt: skip
def test_layers_that_it_cannot_say_are_refused(config, layers, line):
    assert line in refusals(plan_of(config, layers))


@pytest.mark.parametrize("target", ["megatron", "holmes", "deepspeed"])
def test_other_frameworks_refuse_it_by_name(target):
    assert any(line.startswith("schedule dualpipev: ") for line in exporters.unsupported(target, plan_of()))
