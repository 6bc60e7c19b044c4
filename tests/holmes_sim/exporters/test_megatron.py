"""What is written for Megatron-LM, by hand; its own code reads every export in tests/peers/megatron.py."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest
import yaml

from holmes_sim import exporters
from holmes_sim.exporters import megatron
from holmes_sim.launching import environment, folder, hosts, megatron_flags, megatron_groups
from sim.hardware.stack import DEFAULT
from sim.plan.parallel_config import ParallelConfig
from sim.plan.under_stack import with_stack
from tests import features

BY_NAME = {feature.name: feature for feature in features.FEATURES}


def plan_of(name, **config):
    feature = BY_NAME[name]
    return features.plan_of(replace(feature, config=feature.config | config))


def written(plan, name):
    return megatron.launch(plan).files[name].content


def refusals(plan):
    return list(exporters.unsupported("megatron", plan))


def test_arguments_of_unlike_stages():
    assert written(plan_of("stages of unlike layers"), "megatron.args").splitlines() == [
        "--tensor-model-parallel-size 2",
        "--pipeline-model-parallel-size 2",
        "--context-parallel-size 1",
        "--sequence-parallel",
        "--pipeline-model-parallel-layout Et*13|t*11L",
        "--micro-batch-size 1",
        "--global-batch-size 16",
        "--seq-length 2048",
        "--num-layers 24",
        "--hidden-size 2304",
        "--ffn-hidden-size 6144",
        "--num-attention-heads 24",
        "--kv-channels 96",
        "--max-position-embeddings 2048",
        "--position-embedding-type rope",
        "--swiglu",
        "--disable-bias-linear",
        "--normalization RMSNorm",
        "--attention-dropout 0.0",
        "--hidden-dropout 0.0",
        "--untie-embeddings-and-output-weights",
        "--padded-vocab-size 51200",
        "--bf16",
        "--use-distributed-optimizer",
        "--overlap-grad-reduce",
        "--overlap-param-gather",
        "--attention-backend flash",
    ]


def test_capacity_of_experts():
    facts = {"capacity_factor": 1.25, "pad_to_capacity": True, "dispatcher": "hybridep", "ep": 2}
    plan = features.plan_of(features.Feature("", facts, model=features.EXPERTS))
    lines = written(plan, "megatron.args").splitlines()
    assert {"--moe-expert-capacity-factor 1.25", "--moe-pad-expert-input-to-capacity"} <= set(lines)
    bridge = written(plan, "bridge-overrides.txt").splitlines()
    assert {"model.moe_expert_capacity_factor=1.25", "model.moe_pad_expert_input_to_capacity=true"} <= set(bridge)
    assumed = megatron.launch(plan).assumed
    assert (
        "Each expert drops the tokens above 1.25 times the mean, those of least probability: that changes what is trained."
    ) in assumed
    assert "Options of the router (score function, groups, bias, auxiliary loss) are left to the framework." in assumed


@pytest.mark.parametrize(
    ("name", "more", "less"),
    [
        ("virtual stages of unlike layers", ["--pipeline-model-parallel-layout Et*6|t*7|t*6|t*5L"], []),
        ("context parallel", ["--context-parallel-size 2", "--cp-comm-type p2p", "--global-batch-size 16"], []),
        ("experts, ep 2", [
            "--expert-model-parallel-size 2", "--expert-tensor-parallel-size 2", "--num-experts 8", "--moe-router-topk 2",
            "--moe-ffn-hidden-size 6144", "--moe-token-dispatcher-type alltoall",
        ], []),
        ("ZeRO 0", [], ["--use-distributed-optimizer", "--overlap-param-gather"]),
        ("ZeRO 1 shared by half of dp", ["--num-distributed-optimizer-instances 2"], ["--sequence-parallel"]),
        ("microbatches of 2", ["--micro-batch-size 2", "--global-batch-size 16"], []),
        ("recompute selective", ["--recompute-granularity selective", "--attention-backend unfused"], []),
        ("recompute full",
         ["--recompute-granularity full", "--recompute-method uniform", "--recompute-num-layers 1"], []),
        ("gradients not overlapped", ["--use-distributed-optimizer"], ["--overlap-grad-reduce", "--overlap-param-gather"]),
        ("no sequence parallelism", [], ["--sequence-parallel"]),
        ("fp16", ["--fp16"], ["--bf16"]),
        ("grouped queries", ["--group-query-attention", "--num-query-groups 8"], []),
        ("gelu, not gated", ["--ffn-hidden-size 9216"],
         ["--swiglu", "--disable-bias-linear", "--normalization RMSNorm", "--hidden-dropout 0.0"]),
        ("learned positions",
         ["--max-position-embeddings 2048", "--position-embedding-type learned_absolute"], []),
        ("tied embeddings", [], ["--untie-embeddings-and-output-weights"]),
    ],
)  # fmt: skip
def test_arguments_of_what_is_not_plain(name, more, less):
    lines = written(plan_of(name), "megatron.args").splitlines()
    assert set(more) <= set(lines)
    assert set(less).isdisjoint(lines)


@pytest.mark.parametrize(("layers", "layout"), [((24, 0), "Et*24|L"), ((0, 24), "E|t*24L")])
def test_a_stage_may_have_the_embedding_or_the_head_alone(layers, layout):
    """As Megatron-Core's own example writes it: `L` after the last bar (--pipeline-model-parallel-layout)."""
    plan = features.plan_of(replace(BY_NAME["plain"], layers=layers))
    assert f"--pipeline-model-parallel-layout {layout}" in written(plan, "megatron.args").splitlines()


@pytest.mark.parametrize("overlaps", [False, True])
def test_overlap_of_tensor_parallelism_is_asked_for(overlaps):
    plan = plan_of("stages of unlike layers")
    found = written(replace(plan, config=replace(plan.config, tp_overlap=overlaps)), "megatron.args").splitlines()
    assert ("--tp-comm-overlap" in found) is overlaps


@pytest.mark.parametrize("overlaps", [False, True])
def test_overrides_ask_the_model_for_overlap_with_the_default_buffers(overlaps):
    """comm_overlap is null, so nothing else sets it; buffers of a recipe would have the recipe's degrees."""
    plan = plan_of("stages of unlike layers")
    found = written(replace(plan, config=replace(plan.config, tp_overlap=overlaps)), "bridge-overrides.txt").splitlines()
    assert f"model.tp_comm_overlap={str(overlaps).lower()}" in found
    assert "comm_overlap=null" in found
    assert ("model.tp_comm_overlap_cfg=null" in found) is overlaps


@pytest.mark.parametrize(("precision", "refused"), [("bf16", False), ("fp16", True), ("fp32", True)])
def test_overlap_in_fp16_or_fp32_is_refused_by_name(precision, refused):
    plan = plan_of("stages of unlike layers")
    gradients = "fp16" if precision == "fp16" else "fp32"
    workload = replace(plan.workload, precision=precision)
    plan = replace(plan, workload=workload, config=replace(plan.config, tp_overlap=True, gradient_precision=gradients))
    reasons = [reason for reason in exporters.unsupported("megatron", plan) if reason.startswith("tp_overlap")]
    assert bool(reasons) is refused
    if refused:
        assert reasons == [
            f"tp_overlap with precision {precision}: the user buffers of its Transformer Engine are bf16, fp8 or mxfp8; "
            "precision bf16, or a stack without tp_overlap"
        ]
    alone = replace(plan, config=replace(plan.config, tp_overlap=False))
    assert not [reason for reason in exporters.unsupported("megatron", alone) if reason.startswith("tp_overlap")]


def test_one_pipeline_rank_has_no_layout():
    lines = written(plan_of("plain", pp=1, dp=4, num_microbatches=(4,) * 4), "megatron.args").splitlines()
    assert "--pipeline-model-parallel-size 1" in lines
    assert not [line for line in lines if "layout" in line]


def test_reduction_in_switches_is_asked_for():
    plan = plan_of("plain", pp=1, tp=4, zero_stage=0)
    clusters = plan.fleet.clusters
    nics = tuple(replace(nic, sharp=nic.kind == "infiniband") for nic in clusters[0].node.nics)
    switched = replace(clusters[0], node=replace(clusters[0].node, nics=nics))
    fleet = replace(plan.fleet, clusters=(switched, *clusters[1:]))
    groups = tuple(replace(group, collective="sharp") if group.kind == "dp" else group for group in plan.groups)
    asked = replace(plan, topology=replace(plan.topology, fleet=fleet), groups=groups)
    assert "--use-sharp" in written(asked, "megatron.args").splitlines()
    assert "--use-sharp" not in written(plan, "megatron.args").splitlines()


@pytest.mark.parametrize(
    ("facts", "asked"),
    [({}, False), ({"fp8_param_gather": True}, True), ({"fp8_param_gather": True, "zero_stage": 0}, False)],
)
def test_gathers_in_fp8_need_the_distributed_optimizer(facts, asked):
    feature = replace(BY_NAME["plain"], precision="fp8", nodes=("b/node0", "b/node1"), second=("b200-sxm-180gb", "nvlink5"))
    plan = features.plan_of(feature)
    launch = megatron.launch(replace(plan, config=replace(plan.config, **facts)))
    assert ("--fp8-param-gather" in launch.files["megatron.args"].content.splitlines()) is asked
    assert any(line.startswith("Megatron-Bridge gathers weights in fp8") for line in launch.assumed) is (not facts)


@pytest.mark.parametrize(
    ("precision", "gradients", "flags"),
    [
        ("bf16", "bf16", ["--bf16", "--grad-reduce-in-bf16"]),
        ("fp16", "fp32", ["--fp16", "--accumulate-allreduce-grads-in-fp32"]),
        ("fp8", "fp32", ["--bf16", "--fp8-format hybrid"]),
        ("mxfp8", "fp32", ["--bf16", "--fp8-format e4m3", "--fp8-recipe mxfp8"]),
        ("nvfp4", "fp32", ["--bf16", "--fp4-format e2m1", "--fp4-recipe nvfp4"]),
    ],
)
def test_precision_of_gradients(precision, gradients, flags):
    feature = replace(
        BY_NAME["plain"], precision=precision, config={"gradient_precision": gradients}, nodes=("b/node0", "b/node1"),
        second=("b200-sxm-180gb", "nvlink5"),
    )  # fmt: skip
    lines = written(features.plan_of(feature), "megatron.args").splitlines()
    assert lines[lines.index("--padded-vocab-size 51200") + 1 : lines.index("--use-distributed-optimizer")] == flags


@pytest.mark.parametrize("current", [False, True])
def test_scales_of_fp8_are_those_of_the_plan(current):
    """fp8_recipe of transformer_config.py is delayed by default; tensorwise is Float8CurrentScaling of Transformer Engine."""
    feature = replace(BY_NAME["plain"], precision="fp8", nodes=("b/node0", "b/node1"), second=("b200-sxm-180gb", "nvlink5"))
    plan = with_stack(replace(DEFAULT, current_scaling=current), features.plan_of(feature))
    launch = megatron.launch(plan)
    assert ("--fp8-recipe tensorwise" in launch.files["megatron.args"].content.splitlines()) is current
    kind = "current" if current else "delayed"
    assert f"mixed_precision=bf16_with_fp8_{kind}_scaling_mixed" in launch.files["bridge-overrides.txt"].content.splitlines()
    assert f"fp8 uses the format hybrid with {kind} scaling, over bf16." in launch.assumed
    assert any("keeps the first and the last layer in bf16" in line for line in launch.assumed) is current


@pytest.mark.parametrize("precision", ["mxfp8", "nvfp4"])
def test_megatron_bridge_has_a_recipe_of_scales_by_block(precision):
    plan = features.plan_of(replace(BY_NAME["plain"], precision=precision, **features.BLACKWELL))
    launch = megatron.launch(plan)
    assert f"mixed_precision=bf16_with_{precision}_mixed" in launch.files["bridge-overrides.txt"].content.splitlines()
    gathers = "Megatron-Bridge gathers weights in nvfp4 (training/mixed_precision.py); the plan's step assumes bf16."
    assert (gathers in launch.assumed) is (precision == "nvfp4")


def test_user_buffers_do_not_take_nvfp4():
    plan = features.plan_of(replace(BY_NAME["plain"], precision="nvfp4", **features.BLACKWELL))
    plan = replace(plan, config=replace(plan.config, tp_overlap=True))
    assert list(exporters.unsupported("megatron", plan)) == [
        "tp_overlap with precision nvfp4: the user buffers of its Transformer Engine are bf16, fp8 or mxfp8; "
        "precision bf16, or a stack without tp_overlap"
    ]


def test_flash_attention_recomputes_nothing_selectively():
    launch = megatron.launch(plan_of("plain", recompute="selective"))
    assert "recompute" not in launch.files["megatron.args"].content
    assert any(line.startswith("recompute selective has no effect") for line in launch.assumed)


def test_networks_of_a_pipeline_across_fabrics():
    # Stage 0 is ranks 0-3 on a host with InfiniBand, stage 1 ranks 4-7 on one with RoCE: what spans stages leaves its host.
    assert written(plan_of("pipeline across fabrics (TCP)"), "nccl.yaml").splitlines() == [
        "# NCCL's network by name of group, read by megatron/core/parallel_state.py",
        "pp: {net_name: Socket}",
        "embd: {net_name: Socket}",
        "mp: {net_name: Socket}",
        "tp_ep_pp: {net_name: Socket}",
        "intra_dist_opt_instance: {net_name: Socket}",
    ]


def test_networks_of_data_parallel_groups_across_fabrics():
    # Each stage is two devices on InfiniBand and two on RoCE: dp crosses, the pipelines stay inside their hosts.
    networks = yaml.safe_load(written(plan_of("data parallel across fabrics (TCP)"), "nccl.yaml"))
    crossing = {"dp", "dp_cp", "tp_dp", "tp_dp_cp", "ep_dp", "intra_dist_opt_instance"}
    assert networks == {name: {"net_name": "Socket"} for name in crossing}


def test_names_whose_groups_have_several_networks_are_left_to_the_shim():
    # Stage 0 on two hosts with InfiniBand (a0, a1), stage 1 on one with RoCE (b0, b1 would be RDMA too): dp is IB or inside.
    feature = replace(
        BY_NAME["plain"], nodes=("a/node0", "a/node1", "b/node0"), order=(0, 1, 4, 5, 8, 9, 10, 11),
    )  # fmt: skip
    lines = written(features.plan_of(feature), "nccl.yaml").splitlines()
    assert "# dp: IB, inside a host: holmes_launch.py tells each group its own" in lines
    assert "pp: {net_name: Socket}" in lines
    assert not [line for line in lines if line.startswith("dp:")]


def test_inside_one_host_there_is_no_network_to_name():
    plan = plan_of("plain", pp=1, num_microbatches=(8, 8))
    launch = megatron.launch(plan)
    assert "nccl.yaml" not in launch.files
    assert "nccl" not in launch.files["launch/a-node0.sh"].content


def test_groups_that_megatron_builds_beyond_the_plans():
    found: dict[str, list[tuple[int, ...]]] = {}
    for name, ranks in megatron_groups.of_config(ParallelConfig(tp=2, pp=2, dp=2, num_microbatches=(1, 1))):
        found.setdefault(name, []).append(ranks)
    assert found["mp"] == [(0, 1, 4, 5), (2, 3, 6, 7)]
    assert found["embd"] == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert found["dp_cp"] == [(0, 2), (1, 3), (4, 6), (5, 7)]
    assert found["tp_dp"] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert found["intra_dist_opt_instance"] == [(0, 1, 2, 3, 4, 5, 6, 7)]
    assert "intra_dp_cp" not in found


def test_a_state_held_twice_has_groups_for_each_copy():
    config = ParallelConfig(dp=4, zero_shard_size=2, num_microbatches=(1,) * 4)
    found = [(name, ranks) for name, ranks in megatron_groups.of_config(config) if name.startswith(("intra", "inter"))]
    assert found == [
        ("intra_dp_cp", (0, 1)), ("intra_dp_cp", (2, 3)),
        ("intra_ep_dp", (0, 1)), ("intra_ep_dp", (2, 3)),
        ("inter_ep_dp", (0, 2)), ("inter_ep_dp", (1, 3)),
        ("intra_dist_opt_instance", (0, 1)), ("intra_dist_opt_instance", (2, 3)),
    ]  # fmt: skip


def test_a_host_keeps_the_rdma_that_only_groups_of_the_framework_use():
    # Pipeline ranks 0 and 2 are hosts of one InfiniBand fabric, pipeline rank 1 has RoCE: all groups of the plan that leave
    # a host go over TCP, but Megatron-LM joins the tied embedding of pipeline ranks 0 and 2.
    feature = replace(
        BY_NAME["plain"], config={"pp": 3}, layers=(8, 8, 8), nodes=("a/node0", "b/node0", "a/node1"), order=tuple(range(12)),
    )  # fmt: skip
    plan = features.plan_of(feature)
    by_host = {host.name: environment.Environments(plan).of_host(host) for host in hosts.of_plan(plan)}
    assert by_host["a-node0"]["NCCL_IB_HCA"] == by_host["a-node1"]["NCCL_IB_HCA"] == "=mlx5_0,mlx5_1"
    assert by_host["b-node0"]["NCCL_IB_DISABLE"] == "1"
    assert "embd: {net_name: IB}" in written(plan, "nccl.yaml")


def test_the_script_hands_every_word_to_torchrun(tmp_path):
    folder.write(megatron.launch(plan_of("stages of unlike layers")), tmp_path / "out")
    (tmp_path / "Et*13|t*11L").write_text("")  # a pattern of file names would find it, and others like it
    (tmp_path / "Et13|tx11L").write_text("")
    (tmp_path / "torchrun").write_text('#!/bin/sh\nprintf "%s\\n" "$@" "$CUDA_DEVICE_MAX_CONNECTIONS"\n')
    (tmp_path / "torchrun").chmod(0o755)
    output = subprocess.run(
        ["bash", "out/launch/a-node1.sh", "--lr", "3e-4 *"],
        cwd=tmp_path, env={"PATH": f"{tmp_path}:/usr/bin:/bin", "HOLMES_HOST": "a-node1"}, check=True, capture_output=True,
        text=True,
    ).stdout.splitlines()  # fmt: skip
    arguments = (tmp_path / "out" / "megatron.args").read_text().split()
    out = tmp_path / "out"
    assert output == [
        "--nnodes=2", "--nproc-per-node=4", "--node-rank=1", "--master-addr=a-node0", "--master-port=29500",
        f"{out}/holmes_launch.py", "pretrain_gpt.py", *arguments,
        "--nccl-communicator-config-path", f"{out}/nccl.yaml", "--lr", "3e-4 *", "1",
    ]  # fmt: skip
    assert "Et*13|t*11L" in arguments


def test_overrides_of_a_recipe():
    lines = written(plan_of("virtual stages of unlike layers"), "bridge-overrides.txt").splitlines()
    assert lines[:10] == [
        "model.tensor_model_parallel_size=2",
        "model.sequence_parallel=true",
        "model.context_parallel_size=1",
        "model.pipeline_model_parallel_size=2",
        "model.virtual_pipeline_model_parallel_size=2",
        "model.pipeline_model_parallel_layout=Et*6|t*7|t*6|t*5L",
        "model.num_layers_in_first_pipeline_stage=null",
        "model.num_layers_in_last_pipeline_stage=null",
        "model.account_for_embedding_in_pipeline_split=false",
        "model.account_for_loss_in_pipeline_split=false",
    ]
    assert lines[10] == "model.tp_comm_overlap=false"
    assert "mixed_precision=bf16_mixed" in lines
    assert "ddp.num_distributed_optimizer_instances=1" in lines
    assert {"dist.use_megatron_fsdp=false", "ddp.use_megatron_fsdp=false"} <= set(lines)  # which a recipe may have


def test_overrides_are_left_out_where_no_mixed_precision_of_megatron_bridge_is_the_plans():
    launch = megatron.launch(plan_of("plain", gradient_precision="bf16"))
    assert not [name for name in launch.files if name.startswith("bridge")]
    assert "Bridge" not in launch.how
    assert (
        "no mixed precision of Megatron-Bridge has precision bf16 with gradients in bf16: no overrides for it."
        in launch.assumed
    )


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("replicas of unlike microbatches",
         "num_microbatches 9, 7: all replicas have the same number; --strategy holmes, or --dp that divides the batch"),
        ("schedule zb-h1", "schedule zb-h1: it supports 1F1B, plain or interleaved; --schedule 1f1b or interleaved"),
        ("schedule gpipe", "schedule gpipe: it supports 1F1B, plain or interleaved; --schedule 1f1b or interleaved"),
        ("ZeRO 3", "zero_stage 3 with pp 2: Megatron-FSDP has no pipeline in its mesh of ranks; --pp 1, or --zero-stage 1"),
        ("fp32", "attention flash: its kernels take fp16 and bf16, not fp32; attention unfused, or precision bf16"),
        ("devices of two vendors", "vendors nvidia, amd: NCCL does not join them, and gloo cannot send tensors of devices; "
         "devices of one vendor, or a fleet with communicator unified"),
        ("devices of Huawei alone", "vendor huawei: it is built for CUDA and ROCm; devices of NVIDIA or AMD"),
    ],
)  # fmt: skip
def test_refusals(name, line):
    assert refusals(plan_of(name)) == [line]


@pytest.mark.parametrize(
    ("config", "model", "precision", "line"),
    [
        ({"overlap_grad_reduce": False}, {}, "bf16",
         "overlap_grad_reduce false: --overlap-param-gather requires --overlap-grad-reduce; "
         "both of them, or overlap_param_gather false too"),
        ({"pp": 1, "vpp": 2, "dp": 4, "num_microbatches": (4,) * 4, "schedule": "interleaved"}, {}, "bf16",
         "vpp 2: virtual stages need a pipeline; pp 2 or more, or vpp 1"),
        ({"schedule": "interleaved"}, {}, "bf16",
         "schedule interleaved: with vpp 1 it runs plain 1F1B; vpp 2 or more, or --schedule 1f1b"),
        ({"attention": "unfused"}, {}, "tf32",
         "precision tf32: there is no flag for it; bf16, fp8, mxfp8, nvfp4, fp16 or fp32"),
        ({"gradient_precision": "fp16"}, {}, "bf16",
         "gradient_precision fp16: there is no flag for it with precision bf16; fp32 or bf16"),
        ({}, {"learned_positions": 1024}, "bf16",
         "learned_positions 1024: fewer than seq_len 2048; as many positions as a sequence has tokens, or 0 for rotary ones"),
        ({}, {"heads": 18, "kv_heads": 3}, "bf16",
         "kv_heads 3: neither a multiple nor a divisor of tp 2; a tp that divides them or is a multiple"),
        ({"sequence_parallel": False}, features.EXPERTS, "bf16",
         "sequence_parallel false: experts with tp 2 require it; sequence_parallel true, or tp 1"),
        ({"dispatcher": "deepep", "ep": 2, "capacity_factor": 1.1, "pad_to_capacity": True}, features.EXPERTS, "bf16",
         "pad_to_capacity with dispatcher deepep: its config refuses both; dispatcher alltoall or hybridep, or no padding"),
        ({"cuda_graphs": ("full_iteration",)}, features.EXPERTS, "bf16",
         "cuda_graphs full_iteration: the export does not set them; leave it out"),
        ({"offload": ("optimizer",), "zero_stage": 0}, {}, "bf16",
         "offload optimizer with zero_stage 0: it needs a sharded optimizer; --zero-stage 1"),
        ({"offload": ("optimizer",), "gradient_precision": "fp16"}, {}, "fp16",
         "offload optimizer with precision fp16: its optimizer on the host is for bf16; bf16"),
        ({}, features.EXPERTS | {"mlp": "gelu"}, "bf16",
         "mlp gelu: biases of experts are not sharded by tp 2; etp 1, or mlp swiglu or relu2"),
    ],
)  # fmt: skip
def test_refusals_of_combinations(config, model, precision, line):
    assert refusals(features.plan_of(features.Feature("", config, model=model, precision=precision))) == [line]


NO_GATHER = {"overlap_param_gather": False}


def test_optimizer_state_on_the_host_has_its_flags():
    plan = features.plan_of(features.Feature("", {"offload": ("optimizer",), "overlap_grad_reduce": False} | NO_GATHER))
    assert megatron_flags.text(megatron_flags.optimizer(plan)) == (
        "--use-distributed-optimizer\n--optimizer-cpu-offload\n--optimizer-offload-fraction 1.0\n"
        "--use-precision-aware-optimizer\n"
    )
    launch = megatron.launch(plan)
    assert "Copies and the host's optimizer follow one another, as in the plan: without --overlap-cpu-optimizer-d2h-h2d." in (
        launch.assumed
    )
    assert "bridge-overrides.txt" not in launch.files


def test_activations_on_the_host_have_their_flag():
    """Of all of the 24 layers but the last one, as Transformer Engine wants it."""
    plan = features.plan_of(features.Feature("", {"pp": 1, "offload": ("activations",)}))
    assert refusals(plan) == []
    assert megatron_flags.text(megatron_flags.recomputation(plan)) == "--cpu-offloading-num-layers 23\n"
    launch = megatron.launch(plan)
    kept = [line for line in str(launch.files["bridge-overrides.txt"].content).splitlines() if "offload" in line]
    assert kept == [
        "model.cpu_offloading_num_layers=23", "model.cpu_offloading=true", "model.cpu_offloading_weights=false",
    ]  # fmt: skip
    assert "The last layer stays on the device (--cpu-offloading-num-layers); the plan counts copies of all layers." in (
        launch.assumed
    )


@pytest.mark.parametrize(("scaling", "refused"), [(True, True), (False, False)])
def test_state_on_the_host_with_weights_in_fp8_takes_delayed_scaling_only(scaling, refused):
    """megatron/training/arguments.py of d98e8a64, line 1889."""
    config = ParallelConfig(
        dp=2, num_microbatches=(1, 1), offload=("optimizer",), fp8_param_gather=True, current_scaling=scaling
    )
    workload = replace(plan_of("plain").workload, precision="fp8")
    assert (
        list(megatron.unsupported_layout(config, workload))
        == ["offload optimizer with fp8_param_gather: it takes delayed scaling only; a stack without current_scaling"] * refused
    )


def test_state_on_the_host_is_adams_alone():
    plan = features.plan_of(features.Feature("", {"offload": ("optimizer",)}))
    smaller = replace(plan, workload=replace(plan.workload, optimizer="adam-bf16-moments"))
    assert refusals(smaller) == ["offload optimizer with optimizer adam-bf16-moments: the state on the host is fp32; adam"]


def test_a_number_of_recomputed_layers_is_megatrons_block():
    plan = features.plan_of(features.Feature("", {"recompute": "full", "recompute_layers": (5,)}))
    text = megatron_flags.text(megatron_flags.recomputation(plan))
    assert text == "--recompute-granularity full\n--recompute-method block\n--recompute-num-layers 5\n"


def test_stages_that_recompute_unlike_numbers_of_layers_are_refused():
    plan = features.plan_of(features.Feature("", {"recompute": "full", "recompute_layers": (5, 2)}))
    assert refusals(plan) == [
        "recompute_layers 5, 2: --recompute-num-layers is one number for all stages; the same for each stage (plan with --for)"
    ]


@pytest.mark.parametrize(
    ("config", "flags"),
    [
        ({"recompute_modules": ("layernorm", "mlp")}, "--recompute-modules layernorm mlp\n"),
        ({"recompute_modules": ("core_attn", "mlp")}, "--recompute-modules mlp\n"),
        ({"recompute_modules": ("core_attn", "mlp"), "attention": "unfused"}, "--recompute-modules core_attn mlp\n"),
        ({"recompute_modules": ("core_attn",), "attention": "unfused"}, ""),
    ],
)
def test_recomputed_modules_have_their_flag(config, flags):
    plan = features.plan_of(features.Feature("", {"recompute": "selective"} | config))
    assert megatron_flags.text(megatron_flags.recomputation(plan)) == f"--recompute-granularity selective\n{flags}"


def test_megatron_bridge_takes_recomputed_modules_as_a_list():
    plan = features.plan_of(features.Feature("", {"recompute": "selective", "recompute_modules": ("layernorm", "mlp")}))
    assert "model.recompute_modules=[layernorm,mlp]\n" in written(plan, "bridge-overrides.txt")


@pytest.mark.parametrize(("scaling", "refused"), [(False, True), (True, False)])
def test_norms_are_not_recomputed_with_delayed_scaling(scaling, refused):
    """megatron/core/transformer/transformer_config.py of d98e8a64, line 2001."""
    config = ParallelConfig(num_microbatches=(1,), recompute="selective", recompute_modules=("layernorm", "mlp"))
    workload = replace(plan_of("plain").workload, precision="fp8")
    assert (
        list(megatron.unsupported_layout(replace(config, current_scaling=scaling), workload))
        == ["recompute_modules layernorm in fp8: not with delayed scaling; a stack with current_scaling, or others"] * refused
    )


@pytest.mark.parametrize("target", ["deepspeed", "holmes", "torchtitan"])
def test_targets_without_recomputed_modules_refuse_them(target):
    schedule = features.schedule(target)
    facts = {"recompute": "selective", "recompute_modules": ("layernorm",)}
    plans = [features.plan_of(features.Feature("", each), schedule) for each in ({}, facts)]
    plain, refused = (set(exporters.unsupported(target, plan)) for plan in plans)
    assert [line.split()[0] for line in refused - plain] in (["recompute_modules"], ["recompute"])


def test_one_expert_for_a_token_has_its_softmax_before_the_choice():
    """transformer_config.py of d98e8a64, line 2669: "Please use --moe-router-pre-softmax when topk is 1."."""
    plan = features.plan_of(features.Feature("", {}, model=features.EXPERTS | {"experts_per_token": 1}))
    lines = written(plan, "megatron.args").splitlines()
    assert lines[lines.index("--moe-router-topk 1") + 1] == "--moe-router-pre-softmax"
    assert any("--moe-router-pre-softmax" in line for line in megatron.launch(plan).assumed)
    assert "--moe-router-pre-softmax" not in written(plan_of("experts, ep 1"), "megatron.args").splitlines()


@pytest.mark.parametrize(
    ("facts", "model", "line"),
    [
        ({"cp": 2, "dp": 1, "num_microbatches": (16,), "cp_algo": "ulysses"}, {"kv_heads": 2},
         "kv_heads 2: cp_algo ulysses deals the 1 of a tp rank out to 2 ranks, which must divide them; cp_algo ring"),
        ({"cp": 4, "tp": 1, "pp": 1, "dp": 2, "cp_algo": "ulysses"}, {"heads": 18, "kv_heads": 18, "head_dim": 128},
         "heads 18: cp_algo ulysses deals the 18 of a tp rank out to 4 ranks, which must divide them; cp_algo ring"),
        ({"cp": 2, "dp": 1, "num_microbatches": (16,), "cp_algo": "ulysses"}, {"kv_heads": 4}, None),
    ],
)  # fmt: skip
def test_heads_that_ranks_exchange_are_whole(facts, model, line):
    """Transformer Engine: "The number of attention heads needs to be divisible by CP size!"."""
    assert refusals(features.plan_of(features.Feature("", facts, model=model))) == ([line] if line else [])


@pytest.mark.parametrize(
    ("length", "facts", "line"),
    [
        (1026, {"tp": 4, "pp": 1},
         "seq_len 1026: sequence parallelism divides a rank's tokens by tp 4; a multiple of 4, or sequence_parallel false"),
        (1028, {"tp": 2, "pp": 1, "cp": 2, "dp": 2, "num_microbatches": (8, 8)}, None),
        (1036, {"tp": 4, "pp": 1, "cp": 2, "dp": 1, "num_microbatches": (16,)},
         "seq_len 1036 with cp 2: sequence parallelism divides a rank's tokens by tp 4; a multiple of 8, or "
         "sequence_parallel false"),
        (1026, {"tp": 4, "pp": 1, "sequence_parallel": False}, None),
    ],
)  # fmt: skip
def test_sequences_are_split_whole(length, facts, line):
    """mappings.py of d98e8a64, line 72: "First dimension of the tensor should be divisible by tensor parallel size"."""
    plan = plan_of("plain")
    config = replace(plan.config, **facts)
    found = list(exporters.unsupported_layout("megatron", config, replace(plan.workload, seq_len=length)))
    assert found == ([line] if line else [])


@pytest.mark.parametrize("number", [2, 4])
def test_steps_of_as_many_microbatches_as_ranks_are_those_of_older_versions(number):
    plan = plan_of("virtual stages", num_microbatches=(number,) * 2, microbatch_size=8 // number)
    said = "With as many microbatches as pipeline ranks, 2, the plan's step runs all forwards first, as Megatron-LM did until"
    assert any(line.startswith(said) for line in megatron.launch(plan).assumed) == (number == 2)


@pytest.mark.parametrize(("layers", "layout"), [((12, 0, 0, 12), "Et*12|||t*12L"), ((24, 0, 0, 0), "Et*24|||L")])
def test_a_stage_without_layers_passes_messages_on(layers, layout):
    facts = {"tp": 1, "pp": 4, "sequence_parallel": False}
    plan = features.plan_of(features.Feature("", facts, layers=layers))
    assert refusals(plan) == list(exporters.unsupported("flagscale", plan)) == []
    assert f"--pipeline-model-parallel-layout {layout}" in written(plan, "megatron.args").splitlines()
