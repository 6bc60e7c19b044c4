"""Flags of mixtures of experts and of models whose layers differ, for Megatron-LM and FlagScale, and who refuses them."""

from __future__ import annotations

import pytest

from holmes_sim import exporters
from holmes_sim.exporters import flagscale, megatron
from holmes_sim.launching import megatron_groups
from tests import features


def written(plan):
    return megatron.launch(plan).files["megatron.args"].content.splitlines()


def refusals(plan):
    return list(exporters.unsupported("megatron", plan))


def arguments_of_flagscale(plan):
    """Its arguments of a plan whose stages are alike."""
    assert list(exporters.unsupported("flagscale", plan)) == []
    return flagscale.train(plan)["system"]


def test_flagscale_has_deepep_by_the_flag_of_its_megatron_and_not_hybridep():
    plans = {
        name: features.plan_of(features.Feature("", {"ep": 4, "etp": 1, "dispatcher": name}, model=features.EXPERTS))
        for name in ("deepep", "hybridep", "allgather")
    }
    arguments = arguments_of_flagscale(plans["deepep"])
    assert (arguments["moe_token_dispatcher_type"], arguments["moe_enable_deepep"]) == ("flex", True)
    assert "moe_flex_dispatcher_backend" not in arguments
    assert arguments_of_flagscale(plans["allgather"])["moe_token_dispatcher_type"] == "allgather"
    assert list(exporters.unsupported("flagscale", plans["hybridep"])) == [
        "dispatcher hybridep: its Megatron-LM has no flag for it; dispatcher alltoall or deepep"
    ]


def test_experts_on_a_mesh_of_their_own():
    """Four ranks of a stage hold the experts once, two for each tensor-parallel group."""
    folded = {"ep": 4, "etp": 1, "dispatcher": "deepep", "overlap_expert_communication": True}
    folded |= {"vpp": 2, "schedule": "interleaved"}
    plan = features.plan_of(features.Feature("", folded, model=features.EXPERTS))
    assert refusals(plan) == []
    assert [line for line in written(plan) if "expert" in line or "moe" in line] == [
        "--expert-model-parallel-size 4", "--expert-tensor-parallel-size 1", "--num-experts 8", "--moe-router-topk 2",
        "--moe-ffn-hidden-size 6144", "--moe-token-dispatcher-type flex", "--moe-flex-dispatcher-backend deepep",
        "--overlap-moe-expert-parallel-comm", "--moe-grouped-gemm",
    ]  # fmt: skip
    groups = dict.fromkeys(name for name, _ in megatron_groups.of_config(plan.config))
    expert = {name: [ranks for one, ranks in megatron_groups.of_config(plan.config) if one == name] for name in groups}
    assert (expert["ep"], "ep_dp" in expert) == ([(0, 1, 2, 3), (4, 5, 6, 7)], False)


def test_groups_of_experts_are_written_for_megatron_and_flagscale():
    groups = {"n_group": 4, "topk_group": 2}
    plan = features.plan_of(features.Feature("", {"ep": 2}, model=features.EXPERTS | groups))
    assert refusals(plan) == []
    assert {"--moe-router-num-groups 4", "--moe-router-group-topk 2"} <= set(written(plan))
    assert "Options of the router (score function, bias, auxiliary loss, capacity) are left to the framework." in set(
        megatron.launch(plan).assumed
    ) & set(flagscale.launch(plan).assumed)
    arguments = arguments_of_flagscale(plan)
    assert (arguments["moe_router_num_groups"], arguments["moe_router_group_topk"]) == (4, 2)
    assert any("n_group 4, topk_group 2" in fault for fault in exporters.unsupported("holmes", plan))


def test_flags_of_a_model_like_deepseek():
    plan = features.plan_of(
        features.Feature("", {}, layers=(13, 11), model=features.DEEPSEEK | {"n_group": 1, "topk_group": 1})
    )
    assert refusals(plan) == []
    lines = written(plan)
    wanted = "--pipeline-model-parallel-l", "--ffn", "--kv", "--q", "--v-", "--m"
    assert [line for line in lines if line.startswith(wanted)] == [
        "--pipeline-model-parallel-layout Et*13|t*11mL", "--micro-batch-size 1", "--ffn-hidden-size 9216",
        "--max-position-embeddings 2048", "--moe-router-topk 2", "--moe-ffn-hidden-size 6144",
        "--moe-token-dispatcher-type alltoall", "--moe-grouped-gemm", "--moe-shared-expert-intermediate-size 6144",
        "--multi-latent-attention",
        "--kv-lora-rank 256", "--qk-head-dim 64", "--qk-pos-emb-head-dim 32", "--v-head-dim 64", "--q-lora-rank 768",
        "--moe-layer-freq ([0]*3+[1]*21)", "--mtp-num-layers 1",
    ]  # fmt: skip
    assert "bridge-overrides.txt" not in megatron.launch(plan).files
    arguments = arguments_of_flagscale(plan)
    assert (arguments["multi_latent_attention"], arguments["kv_lora_rank"], arguments["qk_head_dim"]) == (True, 256, 64)
    assert (arguments["moe_layer_freq"], arguments["mtp_num_layers"]) == ("([0]*3+[1]*21)", 1)
    assert any("the export does not write dense_layers 3" in fault for fault in exporters.unsupported("holmes", plan))


@pytest.mark.parametrize(("model", "flags"), [
    ({"sliding_window": 128}, ["--window-size 127,0"]),
    ({"sliding_window": 128, "sliding_window_every": 2},
     ["--window-size 127,0", "--window-attn-skip-freq (" + "+".join(["[1]*1", "[0]*1"] * 12) + ")"]),
    ({"sliding_window": 128, "full_attention_every": 6},
     ["--window-size 127,0", "--window-attn-skip-freq (" + "+".join(["[1]*5", "[0]*1"] * 4) + ")"]),
    (features.EXPERTS | {"moe_layer_step": 2, "dense_ffn_hidden": 9216},
     ["--moe-layer-freq (" + "+".join(["[0]*1", "[1]*1"] * 12) + ")"]),
])  # fmt: skip
def test_flags_of_layers_that_alternate(model, flags):
    plan = features.plan_of(features.Feature("", {}, model=model))
    lines = written(plan)
    assert [line for line in lines if line.startswith(("--window", "--moe-layer"))] == flags


def test_sinks_are_a_learnable_softmax_of_megatron_and_flagscale_and_refused_by_others():
    plan = features.plan_of(features.Feature("", {}, model={"attention_sinks": True}))
    assert "--softmax-type learnable" in written(plan)
    assert arguments_of_flagscale(plan)["softmax_type"] == "learnable"
    assert any("attention_sinks True" in fault for fault in exporters.unsupported("holmes", plan))


@pytest.mark.parametrize(("target", "line"), [
    ("torchtitan", "cp_algo ulysses: its ranks gather keys and values; cp_algo ring or all_gather"),
    ("chakra", "cp_algo ulysses: its traces have a ring of cp ranks only; cp_algo ring"),
])  # fmt: skip
def test_ulysses_is_written_for_megatron_alone(target, line):
    plan = features.plan_of(features.Feature("", {"cp": 2, "dp": 1, "num_microbatches": (16,), "cp_algo": "ulysses"}))
    assert "--cp-comm-type a2a" in written(plan)
    assert "model.cp_comm_type=a2a" in megatron.launch(plan).files["bridge-overrides.txt"].content.splitlines()
    assert line in exporters.unsupported(target, plan)


def test_hybrid_context_parallelism_is_a2a_and_p2p_of_megatron():
    """Eight ranks on two nodes of four devices."""
    facts = {"cp": 8, "tp": 1, "pp": 1, "dp": 1, "num_microbatches": (16,), "cp_algo": "hybrid", "domain": 4}
    plan = features.plan_of(features.Feature("", facts))
    assert "--cp-comm-type a2a+p2p" in written(plan) and "--hierarchical-context-parallel-sizes 4 2" in written(plan)
    overrides = megatron.launch(plan).files["bridge-overrides.txt"].content.splitlines()
    assert {"model.cp_comm_type=a2a+p2p", "model.hierarchical_context_parallel_sizes=[4,2]"} < {*overrides}
    assert "dist.use_decentralized_pg=false" in overrides
    refused = "cp_algo hybrid: its ranks gather keys and values; cp_algo ring or all_gather"
    assert refused in exporters.unsupported("torchtitan", plan)


def test_gathered_keys_are_all_gather_of_megatron():
    plan = features.plan_of(features.Feature("", {"cp": 2, "dp": 1, "num_microbatches": (16,), "cp_algo": "all_gather"}))
    assert "--cp-comm-type all_gather" in written(plan)
    assert "model.cp_comm_type=all_gather" in megatron.launch(plan).files["bridge-overrides.txt"].content.splitlines()
