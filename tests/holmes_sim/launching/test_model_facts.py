"""Facts of a model in launches: each is written, or said to be assumed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holmes_sim import exporters
from holmes_sim.launching import model_facts
from holmes_sim.launching.megatron_options import HOLMES, MEGATRON
from holmes_sim.launching.torchtitan_options import LLAMA3
from sim.formats import catalog, planfile
from sim.workload.launch_facts import LaunchFacts
from tests import features


def launched(target, model):
    """The launch of the plain plan, with the facts of a model of the catalogue."""
    plan = features.plan_of(features.FEATURES[0], features.schedule(target))
    shape = replace(plan.workload.model, launch=catalog.model(model).launch)
    return exporters.get(target).launch(replace(plan, workload=replace(plan.workload, model=shape)))


def left_out(model, options, framework):
    """Known facts of a model that a target cannot be told."""
    return [line for line in model_facts.assumed(catalog.model(model), options, framework) if "not written" in line]


@pytest.mark.parametrize(
    ("model", "lines"),
    [
        ("llama-3-8b", ["--rotary-base 500000", "--norm-epsilon 1e-05"]),
        ("llama-3-405b", ["--rotary-base 500000", "--use-rope-scaling", "--rope-scaling-factor 8.0", "--norm-epsilon 1e-05"]),
        ("qwen3-30b-a3b", ["--rotary-base 1000000", "--norm-epsilon 1e-06", "--qk-layernorm"]),
        ("glm-4.5", [
            "--rotary-base 1000000", "--rotary-percent 0.5", "--norm-epsilon 1e-05", "--qk-layernorm", "--add-qkv-bias",
        ]),
        ("gpt-3.6b", []),
    ],
)  # fmt: skip
def test_megatron_is_told_all_that_is_known(model, lines):
    plain = launched("megatron", "gpt-3.6b").files["megatron.args"].content.splitlines()
    found = launched("megatron", model).files["megatron.args"].content.splitlines()
    assert [line for line in found if line not in plain] == lines


def test_what_is_not_known_is_said_once_with_the_defaults():
    assert (
        "--rotary-base 10000, no --use-rope-scaling, --rotary-percent 1.0, --norm-epsilon 1e-05, no --qk-layernorm, "
        "no --add-qkv-bias, --init-method-std 0.02 (Megatron-LM's defaults): the model says no rope_theta, rope_scaling, "
        "rotary_fraction, norm_epsilon, qk_norm, qkv_bias, init_std; set them to your model's."
    ) in launched("megatron", "gpt-3.6b").assumed


def test_a_model_that_says_its_rotary_base_rotates_whole_heads_unless_it_says_otherwise():
    assert list(model_facts.assumed(catalog.model("llama-3-8b"), MEGATRON, "Megatron-LM")) == [
        "--init-method-std 0.02 (Megatron-LM's default): the model says no init_std; set it to your model's."
    ]


def test_a_model_with_learned_positions_and_biases_is_not_asked_for_rotary_ones():
    assert [line.split(" (")[0] for line in model_facts.assumed(catalog.model("gpt-3.6b"), MEGATRON, "Megatron-LM")] == [
        "--norm-epsilon 1e-05, no --qk-layernorm, --init-method-std 0.02"
    ]


def test_what_a_target_cannot_be_told_is_said():
    assert left_out("llama-3-405b", HOLMES, "Holmes") == [
        "rope_theta 500000 of llama-3-405b is not written: Holmes has 10000 here.",
        "rope_scaling llama3 of llama-3-405b is not written: Holmes has none here.",
    ]
    assert "rotary-base" not in model_facts.written(catalog.model("llama-3-405b"), HOLMES)
    yarn = [
        line for line in model_facts.assumed(catalog.model("deepseek-v3"), MEGATRON, "Megatron-LM") if "not written" in line
    ]
    assert yarn == ["rope_scaling yarn of deepseek-v3 is not written: Megatron-LM has none here."]


@pytest.mark.parametrize(
    ("model", "rope"),
    [
        ("gpt-3.6b", 'theta=500000, scaling="llama")'),
        ("llama-3-405b", 'theta=500000, scaling="llama")'),
        ("llama-2-7b", 'theta=10000, scaling="none")'),
    ],
)
def test_torchtitan_has_the_models_rope(model, rope):
    assert f"max_seq_len=131072, {rope}" in launched("torchtitan", model).files["holmes_plan.py"].content


def test_torchtitan_scales_by_another_factor_than_its_own():
    model = replace(catalog.model("llama-3-8b"), launch=LaunchFacts(rope_scaling="llama3", rope_factor=32.0))
    assert model_facts.written(model, LLAMA3) == {"scaling": "llama", "scaling_factor": 32.0}


def test_flagscale_and_deepspeed_have_them_too():
    assert "rotary_base: 500000" in launched("flagscale", "llama-3-8b").files["conf/train/plan.yaml"].content
    assert (
        "They have rope_theta 500000, rope_scaling none, norm_epsilon 1e-05, qk_norm false, qkv_bias false."
        in launched("deepspeed", "llama-3-8b").assumed
    )


def test_such_facts_are_kept_in_a_plan_file_and_do_not_change_its_digest(tmp_path):
    plan = features.plan_of(features.FEATURES[0])
    shape = replace(plan.workload.model, launch=LaunchFacts(rope_theta=500000.0, norm_epsilon=1e-06))
    told = replace(plan, workload=replace(plan.workload, model=shape))
    (tmp_path / "plan.json").write_text(planfile.to_json(told), encoding="utf-8")
    assert planfile.load(tmp_path / "plan.json").workload.model == shape
    assert planfile.digest(told) == planfile.digest(plan)
