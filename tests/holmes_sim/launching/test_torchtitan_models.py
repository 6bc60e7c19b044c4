"""torchtitan's models: which one takes a shape, the text of each, what is refused (run by torchtitan itself: tests/peers)."""

from __future__ import annotations

import ast

import pytest

import holmes_sim
from holmes_sim import commands, exporters, exporting
from holmes_sim.exporters import torchtitan
from holmes_sim.launching import torchtitan_models
from sim.formats import catalog
from sim.formats.edits import edited
from sim.plan.parallel_config import ParallelConfig
from sim.workload.workload import Workload
from tests import features
from tests.more import after

BASES = {
    "llama-3-8b": "llama3_8b",
    "phi-3-mini": "llama3_8b",
    "qwen3-8b": "qwen3_32b",
    "gemma-3-12b": "qwen3_32b",
    "qwen3-30b-a3b": "qwen3_30b_a3b",
    "llama-4-maverick": "qwen3_30b_a3b",
    "qwen2-57b-a14b": "qwen3_30b_a3b",
    "deepseek-v2-lite": "deepseek_v3_16b",
    "deepseek-v2": "deepseek_v3_671b",
    "deepseek-v3": "deepseek_v3_671b",
    "kimi-k2": "deepseek_v3_671b",
    "gpt-oss-120b": "gpt_oss_20b",
}
ALONE = {"pp": 1, "dp": 4, "num_microbatches": (4, 4, 4, 4), "zero_stage": 3}
SINGLE = {"pp": 1, "tp": 1, "dp": 8, "num_microbatches": (2,) * 8, "zero_stage": 3, "ep": 8}


def plan_of(model, **facts):
    config = {key: value for key, value in facts.items() if key not in ("precision", "second", "nodes")}
    other = {key: value for key, value in facts.items() if key not in config}
    return features.plan_of(features.Feature("", config, model=model, **other))


def refusals(model, **facts):
    return list(exporters.unsupported("torchtitan", plan_of(model, **facts)))


def text_of(plan):
    """What the generated function `model` does, as text."""
    assert list(exporters.unsupported("torchtitan", plan)) == []
    parsed = ast.parse(torchtitan.launch(plan).files[torchtitan.MODULE].content)
    return ast.unparse(next(part for part in parsed.body if getattr(part, "name", "") == "model"))


def settings(plan):
    """Statement by statement what the config function sets."""
    parsed = ast.parse(torchtitan.launch(plan).files[torchtitan.MODULE].content)
    function = next(part for part in parsed.body if getattr(part, "name", "") == "plan")
    found = [part for part in function.body if isinstance(part, ast.Assign)]
    return {ast.unparse(part.targets[0]): ast.unparse(part.value) for part in found}


@pytest.mark.parametrize(("name", "base"), BASES.items())
def test_a_model_of_the_catalogue_is_one_of_torchtitans(name, base):
    workload = Workload(catalog.model(name), 16, 2048, "bf16")
    config = ParallelConfig(dp=2, zero_stage=3, num_microbatches=(1, 1), attention="flash")
    assert torchtitan_models.family(workload.model).base == base
    assert list(exporters.unsupported_layout("torchtitan", config, workload)) == []


def test_a_model_like_deepseek_v3():
    plan = plan_of(features.DEEPSEEK, **SINGLE)
    assert (
        "layers=deepseek_v3._build_dsv3_layers(n_layers=24, n_dense_layers=3, dim=dim, n_heads=24, q_lora_rank=768, "
        "kv_lora_rank=256, qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=64, mscale=1.0, dense_hidden_dim=9216, "
        "moe_hidden_dim=6144, num_experts=8, num_shared_experts=1, router_top_k=2, router_score_func='sigmoid', "
        "router_route_norm=True, router_route_scale=2.5, router_num_expert_groups=4, router_num_limited_groups=2, "
        "attn_backend='flex', moe_comm_backend='standard', non_blocking_capacity_factor=None, "
        "rope=ComplexRoPE.Config(dim=32, max_seq_len=131072, theta=10000, scaling='yarn', rope_factor=40.0)))\n"
        "    shape.mtp_layers = deepseek_v3._build_mtp_layers(shape.layers[-1], dim=dim, num_mtp_layers=1)\n"
        "    return shape"
    ) in text_of(plan)
    said = settings(plan)
    assert said["config"] == "deepseek_v3_671b()"
    assert said["config.loss"] == "MTPLoss.Config(global_vocab_size=51200)"
    assert said["parallelism.expert_parallel_degree"] == "8"


def test_queries_from_one_product_and_layers_without_experts():
    plan = plan_of(features.LITE | features.NO_EXPERTS, **ALONE)
    text = text_of(plan)
    assert "q_lora_rank=0" in text and "n_dense_layers=24" in text and "dense_hidden_dim=6144" in text and "mscale=0.7" in text
    assert "shape.mtp_layers" not in text
    assert settings(plan)["parallelism.expert_parallel_degree"] == "1"
    assert settings(plan)["config.loss.loss_fn.global_vocab_size"] == "51200"


@pytest.mark.parametrize(
    ("facts", "router"),
    [
        ({"experts": 64}, "router_score_func='softmax', router_route_norm=False, router_route_scale=1.0"),
        ({"experts": 160, "n_group": 8, "topk_group": 3},
         "router_score_func='softmax', router_route_norm=False, router_route_scale=16.0"),
        ({"experts": 256}, "router_score_func='sigmoid', router_route_norm=True, router_route_scale=2.5"),
    ],
)  # fmt: skip
def test_routers_are_those_of_deepseek_v2_or_v3(facts, router):
    assert router in text_of(plan_of(features.LITE | facts, **ALONE, ep=8, etp=1))


def test_shared_experts_of_another_width_and_none():
    words = "dim=dim, hidden_dim={}, w1_param_init=deepseek_v3._LINEAR_INIT, w2w3_param_init=deepseek_v3._LINEAR_INIT"
    shared = "layer.moe.shared_experts = deepseek_v3.make_ffn_config"
    assert f"{shared}({words.format(1024)})" in text_of(plan_of(features.LITE | {"shared_ffn_hidden": 1024}, **ALONE))
    assert "layer.moe.shared_experts = None" in text_of(plan_of(features.LITE | {"shared_ffn_hidden": 0}, **ALONE))
    assert "shared_experts = " not in text_of(plan_of(features.LITE, **ALONE))
    assert "num_shared_experts=2" in text_of(plan_of(features.LITE | {"shared_ffn_hidden": 12288}, **ALONE))


def test_layers_of_qwen3_that_differ():
    assert (
        "    for at, layer in enumerate(shape.layers):\n"
        "        if (at + 1) % 2 != 0:\n"
        "            layer.moe = None\n"
        "            layer.feed_forward = qwen3.make_ffn_config(dim=dim, hidden_dim=9216, w1_param_init=qwen3._LINEAR_INIT, "
        "w2w3_param_init=qwen3._LINEAR_INIT)\n"
        "    for layer in shape.layers:\n"
        "        if layer.moe is not None:\n"
        "            layer.moe.shared_experts = qwen3.make_ffn_config(dim=dim, hidden_dim=3072, "
        "w1_param_init=qwen3._LINEAR_INIT, w2w3_param_init=qwen3._LINEAR_INIT)\n"
        "    for layer in shape.layers:\n"
        "        if layer.moe is not None:\n"
        "            layer.moe.router.num_expert_groups = 4\n"
        "            layer.moe.router.num_limited_groups = 2\n"
        "    return shape"
    ) in text_of(plan_of(features.MIXED, **ALONE))


@pytest.mark.parametrize(
    ("facts", "condition"),
    [
        ({}, "True"),
        ({"sliding_window_every": 2}, "at % 2 == 0"),
        ({"full_attention_every": 6}, "(at + 1) % 6 != 0"),
        ({"sliding_window_every": 2, "full_attention_every": 3}, "at % 2 == 0 and (at + 1) % 3 != 0"),
    ],
)
def test_windows_are_those_of_their_layers(facts, condition):
    text = text_of(plan_of({"sliding_window": 128} | facts))
    assert "attn_backend='varlen'" in text
    assert f"if {condition}:\n            layer.attention.inner_attention = replace(" in text
    assert "window_size=(127, 0))" in text
    model = plan_of({"sliding_window": 128} | facts).workload.model
    assert [eval(condition, {"at": at}) for at in range(24)] == [model.has_window(at) for at in range(24)]


def test_sinks_are_those_of_gpt_oss():
    text = text_of(plan_of(features.OSS, ep=4, etp=1))
    assert (
        "gpt_oss._make_gptoss_attn_config(dim=dim, layer_id=at, attn_backend='flex', n_heads=24, n_kv_heads=8, head_dim=64, "
        "sliding_window_size=128 if at % 2 == 0 else None, rope=layer.attention.rope)"
    ) in text
    assert "theta=150000, scaling='yarn', rope_factor=32.0, truncate=False" in text
    assert "sliding_window_size=None," in text_of(plan_of({**features.OSS, "sliding_window": 0, "sliding_window_every": 1}))


@pytest.mark.parametrize(
    ("dispatcher", "ep", "backend"),
    [("alltoall", 8, "standard"), ("deepep", 8, "deepep"), ("hybridep", 8, "hybridep"), ("deepep", 1, "standard")],
)
def test_dispatchers_are_those_of_torchtitan(dispatcher, ep, backend):
    found = plan_of(features.EXPERTS, **ALONE, dispatcher=dispatcher, ep=ep, etp=1 if ep > 1 else None)
    assert f"moe_comm_backend='{backend}'" in text_of(found)


def test_products_of_experts_are_in_8_bits():
    fp8 = text_of(plan_of(features.DEEPSEEK, **SINGLE, precision="fp8", **features.HOPPER))
    assert (
        "    shape = Float8LinearConverter.Config(filter_fqns=['lm_head', 'router.gate', 'eh_proj'], "
        "model_compile_enabled=True).build().convert(shape)\n"
        "    return Float8GroupedExpertsConverter.Config(model_compile_enabled=True).build().convert(shape)"
    ) in fp8
    mxfp8 = text_of(plan_of(features.MIXED, ep=4, etp=1, precision="mxfp8", **features.BLACKWELL))
    assert (
        "    shape = MXFP8LinearConverter.Config(fqns=['attention', 'shared_experts', 'feed_forward'], "
        "model_compile_enabled=True).build().convert(shape)\n"
        "    return MXFP8GroupedExpertsConverter.Config(model_compile_enabled=True, pad_multiple=128).build().convert(shape)"
    ) in mxfp8


@pytest.mark.parametrize(("model", "facts", "line"), [
    (features.DEEPSEEK, {"ep": 4, "etp": 1},
     "mtp_layers 1 with pp 2: it predicts further tokens without a pipeline only; pp 1, or mtp_layers 0"),
    (features.DEEPSEEK, ALONE | {"dp": 2, "cp": 2, "num_microbatches": (8, 8)},
     "mtp_layers 1 with cp 2: it predicts further tokens without context parallelism only; cp 1"),
    (features.DEEPSEEK, ALONE | {"recompute": "full"},
     "mtp_layers 1 with recompute full: its FullAC does not reach layers that predict further tokens; none"),
    (features.LITE, {"tp_overlap": True},
     "tp_overlap with attention mla: its gathers before whole weights were not tried; a stack without it"),
    (features.LITE | {"sliding_window": 128}, {},
     "sliding_window 128 with attention mla: its deepseek_v3 attends to all tokens; 0"),
    (features.LITE | {"attention_sinks": True}, {}, "attention_sinks with attention mla: its gpt_oss alone has sinks; false"),
    (features.LITE | {"n_group": 8, "topk_group": 4}, {}, "n_group 8 of 8 experts: its groups have at least 2; fewer groups"),
    ({"attention_sinks": True}, {},
     "attention_sinks: its gpt_oss alone has them, and experts in all layers; a model with experts, or without sinks"),
    (features.OSS | {"dense_layers": 1, "dense_ffn_hidden": 9216}, {},
     "attention_sinks with dense layers: its gpt_oss has experts in all layers; dense_layers 0, moe_layer_step 1"),
    (features.OSS | {"shared_ffn_hidden": 6144}, {},
     "shared_ffn_hidden 6144 with attention_sinks: its gpt_oss shares no experts; 0"),
    (features.OSS, {"precision": "fp8", **features.HOPPER},
     "precision fp8 with attention_sinks: gpt_oss was not tried so; bf16"),
    (features.EXPERTS | {"mtp_layers": 1}, {},
     "mtp_layers 1 with attention standard: its deepseek_v3, which alone predicts further tokens, asserts that all layers have "
     "latent attention; 0"),
    (features.EXPERTS, {"precision": "fp32"}, "precision fp32 with experts: their grouped products are in bf16; bf16"),
    ({"sliding_window": 128}, {"precision": "fp32"},
     "precision fp32 with sliding_window: attention with windows (varlen) multiplies in bf16; bf16"),
    ({"sliding_window": 128}, {"cp": 2, "dp": 1, "num_microbatches": (16,)},
     "cp 2 with sliding_window: attention with windows (varlen) is not divided over cp; cp 1"),
    (features.EXPERTS, {"ep": 4, "etp": 1, "dispatcher": "allgather"},
     "dispatcher allgather: it does not gather tokens on every rank; alltoall, deepep, hybridep"),
    (features.EXPERTS, {"ep": 4, "etp": 1, "dispatcher": "deepep"},
     "dispatcher deepep with pp 2: its buffers are of all microbatches at once; alltoall, or pp 1"),
    (features.EXPERTS, ALONE | {"ep": 8, "etp": 1, "dispatcher": "deepep", "precision": "fp8", **features.HOPPER},
     "dispatcher deepep with precision fp8: it does not pad rows of experts; alltoall or hybridep"),
    (features.MIXED, {"ep": 4, "etp": 1, "overlap_shared_experts": True},
     "overlap_shared_experts: shared experts follow routed ones in one stream; a stack without it"),
])  # fmt: skip
def test_what_its_models_do_not_take_is_refused(model, facts, line):
    assert refusals(model, **facts) == [line]


def test_deepep_is_for_devices_of_nvidia():
    amd = {"nodes": ("b/node0", "b/node1"), "second": ("mi250x", "infinity-fabric-3")}
    assert refusals(features.EXPERTS, **ALONE, ep=8, etp=1, dispatcher="deepep", **amd) == [
        "dispatcher deepep: DeepEP is for devices of nvidia; alltoall"
    ]


def test_latent_vectors_of_all_tokens_are_said_with_their_share():
    """Products of a layer on one rank with tp 2, per token of the sequence, in weights: latent vectors 2304 x (256 + 32 + 768)
    of half of the tokens, queries 768 x 24 x 96 / 2, keys and values 256 x 24 x 128 / 2, projection 24 x 64 x 2304 / 2, MLP
    3 x 2304 x 6144 / 2."""
    other = features.NO_EXPERTS | {"mtp_layers": 0, "n_group": 1, "topk_group": 1}
    lines = torchtitan.launch(plan_of(features.DEEPSEEK | other))
    latent = 2304 * (256 + 32 + 768) / 2
    whole = latent + (768 * 24 * 96 + 256 * 24 * 128 + 24 * 64 * 2304 + 3 * 2304 * 6144) / 2
    assert [line for line in lines.assumed if "latent" in line] == [
        "Each tensor-parallel rank makes the latent vectors of all tokens, the plan's step counts 1/2 of them: "
        f"{latent / whole:.1%} more FLOPs in the products of layers. A stack with whole_latents counts them."
    ]
    counted = torchtitan.launch(plan_of(features.DEEPSEEK | other, whole_latents=True))
    assert not [line for line in counted.assumed if "latent" in line]


@pytest.mark.parametrize("model", after(1, ["deepseek-v2-lite", "gpt-oss-20b", "gemma-3-4b", "qwen2-57b-a14b"]))
def test_plans_for_torchtitan_of_these_models_are_exported(model):
    """From a search of a second."""
    edits = {"workload.model": model, "workload.precision": "bf16", "workload.seq_len": 2048, "workload.global_batch_size": 32}
    where = edited(commands.load("mixed-h100-a100-v100"), edits)
    found = holmes_sim.plan(where, target="torchtitan", time_limit=1.0).plan
    assert exporting.export(found, "torchtitan").files
