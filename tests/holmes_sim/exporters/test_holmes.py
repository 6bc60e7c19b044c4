"""What is written for Holmes' fork, by hand; its own code reads every export in tests/peers/holmes.py."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace

import pytest

from holmes_sim import exporters
from holmes_sim.exporters import holmes
from holmes_sim.launching import folder
from tests import features

BY_NAME = {feature.name: feature for feature in features.FEATURES}
WAITS = {"overlap_param_gather": False}


def plan_of(name="plain", config=(), **facts):
    feature = BY_NAME[name]
    return features.plan_of(replace(feature, config=feature.config | dict(config), **facts))


def written(plan, name):
    return holmes.launch(plan).files[name].content


def across(**facts):
    return plan_of("pipeline across fabrics (TCP)", **facts)


def test_unlike_stages_of_two_device_types():
    assert written(across(layers=(13, 11), config=WAITS), "holmes.args").splitlines() == [
        "--tensor-model-parallel-size 2",
        "--pipeline-model-parallel-size 2",
        "--context-parallel-size 1",
        "--sequence-parallel",
        "--use-hetnet",
        "--hetero-mode pp",
        "--hetero-device-types a b",
        "--hetero-pipeline-stages 1 13 1 11",
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
        "--make-vocab-size-divisible-by 25600",
        "--bf16",
        "--use-distributed-optimizer",
        "--overlap-grad-reduce",
        "--transformer-impl local",
        "--use-flash-attn",
    ]


def test_equal_stages_are_of_the_models_that_gather_ahead():
    lines = written(across(), "holmes.args").splitlines()
    assert lines[-3:] == ["--overlap-param-gather", "--use-mcore-models", "--transformer-impl transformer_engine"]
    assert "--use-flash-attn" not in lines


def test_stages_of_one_device_type_stand_together():
    nodes, order = ("a/node0", "a/node1", "b/node0"), tuple(range(12))
    plan = plan_of(config=WAITS | {"pp": 3}, layers=(9, 8, 7), nodes=nodes, order=order)
    assert "--hetero-pipeline-stages 2 9 8 1 7" in written(plan, "holmes.args").splitlines()


def test_the_order_of_types_is_that_of_the_stages():
    lines = written(across(nodes=("b/node0", "a/node0"), layers=(13, 11), config=WAITS), "holmes.args").splitlines()
    assert "--hetero-device-types b a" in lines


def test_settings_of_every_device_type_and_across_them():
    assert json.loads(written(across(), "config.json")) == [
        {"CLUSTER_NAME": "a", "NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "=eth0"},
        {"CLUSTER_NAME": "b", "NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "=eth0"},
        {"CLUSTER_NAME": "heter", "NCCL_SOCKET_IFNAME": "=eth0"},
    ]  # one host each: no group goes over RDMA
    wide = plan_of(config={"tp": 4}, nodes=("a/node0", "a/node1", "b/node0", "b/node1"), order=tuple(range(16)))
    assert json.loads(written(wide, "config.json")) == [
        {"CLUSTER_NAME": "a", "NCCL_IB_HCA": "=mlx5_0,mlx5_1", "NCCL_SOCKET_IFNAME": "=eth0"},
        {"CLUSTER_NAME": "b", "NCCL_IB_HCA": "=mlx5_0,mlx5_1", "NCCL_SOCKET_IFNAME": "=eth0"},
        {"CLUSTER_NAME": "heter", "NCCL_SOCKET_IFNAME": "=eth0"},
    ]


def test_the_script_says_the_device_type_and_wants_its_config(tmp_path):
    folder.write(holmes.launch(across()), tmp_path / "out")
    (tmp_path / "torchrun").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "torchrun").chmod(0o755)

    def start():
        command = ["bash", "out/launch/b-node0.sh", "--lr", "3e-4"]
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOLMES_HOST": "b-node0"}
        return subprocess.run(command, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True)

    assert start().returncode == 1
    assert "copy config.json of the export to the folder of Holmes" in start().stderr
    (tmp_path / "config.json").write_bytes((tmp_path / "out" / "config.json").read_bytes())
    output = start().stdout.splitlines()
    arguments = (tmp_path / "out" / "holmes.args").read_text().split()
    assert output[6:] == ["pretrain_gpt.py", *arguments, "--hetero-current-device-type", "b", "--lr", "3e-4"]


@pytest.mark.parametrize(
    ("plan", "line"),
    [
        (across(layers=(13, 11)),
         "overlap_param_gather true: only its legacy models support unequal stages, and they cannot overlap the gather; "
         "equal stages, or overlap_param_gather false (plan with --for holmes)"),
        (plan_of("virtual stages"), "vpp 2: its pipeline of device types has no virtual stages; vpp 1 (--vpp 1)"),
        (plan_of("context parallel"), "cp 2: its pipeline of device types has no context parallelism; cp 1"),
        (plan_of("experts, ep 1"), "experts 8: its expert groups do not support device types; a dense model"),
        (plan_of("ZeRO 1 shared by half of dp"),
         "zero_shard_size 2: all replicas shard the optimizer state; no zero_shard_size"),
        (plan_of(config={"gradient_precision": "bf16"}), "gradient_precision bf16: there is no flag for it; fp32"),
        (plan_of(config={"tp_overlap": True, "own_tp_overlap": True, "sequence_parallel": True, "tp": 2, "dp": 1,
                         "num_microbatches": (16,)}, order=(0, 1, 2, 3)),
         "tp_overlap: user buffers were not tried with its pipeline of device types; tp_overlap false"),
        (plan_of("devices of AMD alone"), "vendor amd: it is built for CUDA; devices of NVIDIA"),
        (plan_of("ranks of a host not consecutive"),
         "placement of ranks: its local rank is rank modulo devices of a host; equal hosts, each with consecutive ranks"),
        (plan_of(config={"dp": 1, "pp": 4, "num_microbatches": (16,)}, order=(0, 1, 2, 3, 4, 5, 6, 7)), None),
        (plan_of(config={"dp": 1, "num_microbatches": (16,)}, order=(0, 1, 4, 5)),
         "placement on 2 of 4 devices of a-node0: its local rank is rank modulo devices of a host; whole hosts"),
        (plan_of(config={"pp": 1, "dp": 4, "num_microbatches": (4,) * 4}, nodes=features.ACROSS),
         "pipeline rank 0 on a and b: every device type has its own stages; "
         "each pipeline rank on one fabric (--strategy holmes)"),
        (plan_of(config={"pp": 3}, layers=(8, 8, 8), nodes=("a/node0", "b/node0", "a/node1"), order=tuple(range(12))),
         "stages on a, b, a: the stages of a device type must be consecutive; "
         "a pipeline that visits every fabric once"),
    ],
)  # fmt: skip
def test_refusals(plan, line):
    assert list(exporters.unsupported("holmes", plan)) == ([line] if line else [])


HOPPER = {"nodes": ("b/node0", "b/node1"), "second": ("h100-sxm5-80gb", "nvlink4"), "precision": "fp8"}


@pytest.mark.parametrize(
    ("plan", "line"),
    [
        (plan_of(**HOPPER), None),
        (plan_of(config=WAITS, layers=(13, 11), **HOPPER),
         "precision fp8: only its legacy models support unequal stages, and they have none; equal stages, or bf16"),
        (plan_of(config={"current_scaling": True}, **HOPPER),
         "precision fp8 with current_scaling: it has delayed scaling only; a stack without current_scaling, or bf16"),
        (plan_of(config={"fp8_param_gather": True}, **HOPPER),
         "fp8_param_gather: there is no flag for it; a stack without it, or bf16"),
        (plan_of(config={"tp": 4, "pp": 1, "dp": 2}, model={"kv_heads": 2}),
         "kv_heads 2: its version of Megatron-LM wants a multiple of tp 4; a tp that divides them"),
    ],
)  # fmt: skip
def test_what_its_version_of_megatron_lm_takes(plan, line):
    """transformer_config.py of dadcc08, line 286, and transformer_block.py, line 329."""
    assert list(exporters.unsupported("holmes", plan)) == ([line] if line else [])


def test_fp8_has_the_models_that_have_it():
    lines = written(plan_of(**HOPPER), "holmes.args").splitlines()
    assert {"--bf16", "--fp8-format hybrid", "--use-mcore-models", "--transformer-impl transformer_engine"} <= set(lines)
