"""DeepSpeed: configuration, stages, hostfile, and what is refused (for DeepSpeed itself: tests/peers)."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from holmes_sim import exporters, exporting
from holmes_sim.exporters import deepspeed
from holmes_sim.launching import folder
from sim.hardware.cluster import Trunk
from tests import builders, features
from tests.builders import cluster, device, fleet, nic
from tests.more import more

PLAYED = {"schedule": "1f1b-deepspeed"}


@pytest.fixture
def two_fabrics():
    """Two hosts of two devices under InfiniBand, one under RoCE, Ethernet between them."""
    infiniband, roce = ((nic(kind), nic("ethernet", 1e9)) for kind in ("infiniband", "roce"))
    clusters = (cluster("ib", nodes=2, devices=2, nics=infiniband), cluster("ro", devices=2, nics=roce))
    return fleet(*clusters, trunks=(Trunk(("ib", "ro"), "ethernet", 1e9, 1e-4),))


@pytest.fixture
def one_fabric():
    """Four hosts of four devices."""
    return fleet(cluster("c", nodes=4, devices=4))


def written(plan, name):
    assert list(exporters.unsupported("deepspeed", plan)) == []
    return deepspeed.launch(plan).files[name].content


def values(plan):
    """Name -> source of its value, of the generated module; and the source of its classes and functions."""
    parts = ast.parse(written(plan, deepspeed.MODULE)).body
    named = {ast.unparse(part.targets[0]): ast.unparse(part.value) for part in parts if isinstance(part, ast.Assign)}
    return named | {part.name: ast.unparse(part) for part in parts if hasattr(part, "name")}


def test_an_uneven_pipeline_across_fabrics(two_fabrics):
    plan = builders.plan(two_fabrics, tp=2, pp=3, layers=(3, 1, 2), microbatches=4, microbatch_size=2, **PLAYED)
    assert values(plan)["PARTS"] == "[0, 4, 5, 8]", "one more in front and behind: the embedding and the head"
    assert "PipeModelDataParallelTopology(num_pp=3, num_mp=2, num_dp=1)" in values(plan)["topology"]
    assert written(plan, "hostfile") == "ib-node0 slots=2\nib-node1 slots=2\nro-node0 slots=2\n"
    assert json.loads(written(plan, "ds_config.json")) == {
        "train_batch_size": 8,
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 4,
        "bf16": {"enabled": True},
        "data_types": {"grad_accum_dtype": "fp32"},
        "communication_data_type": "fp32",
        "zero_optimization": {"stage": 1, "overlap_comm": False},
    }


def test_the_first_of_a_plan_is_the_first_of_the_hostfile(two_fabrics):
    plan = builders.plan(two_fabrics, tp=2, pp=3, microbatches=2, **PLAYED)
    turned = builders.plan(two_fabrics, tp=2, pp=3, microbatches=2, placement=plan.placement[4:] + plan.placement[:4], **PLAYED)
    assert written(turned, "hostfile") == "ro-node0 slots=2\nib-node0 slots=2\nib-node1 slots=2\n"


def test_recomputation_of_all_is_of_the_layers_between_embedding_and_head(one_fabric):
    plan = builders.plan(one_fabric, pp=2, recompute="full", **PLAYED)
    assert "'activation_checkpoint_interval': 1" in values(plan)["Pipeline"]
    assert "for layer in layers[1:-1]" in values(plan)["Pipeline"]
    assert "activation_checkpoint" not in values(builders.plan(one_fabric, pp=2, **PLAYED))["Pipeline"]


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_without_a_pipeline_all_of_zero_is_known(one_fabric, stage):
    plan = builders.plan(one_fabric, tp=2, dp=4, zero_stage=stage, microbatches=3)
    assert json.loads(written(plan, "ds_config.json"))["zero_optimization"] == {"stage": stage, "overlap_comm": True}
    assert "Pipeline" not in values(plan)
    assert "PipelineParallelGrid(topology=topology())" in values(plan)["grid"]


def test_without_zero_there_is_no_section_of_it(one_fabric):
    plan = builders.plan(one_fabric, dp=4, zero_stage=0, precision="fp32")
    assert json.loads(written(plan, "ds_config.json")) == {
        "train_batch_size": 4,
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "data_types": {"grad_accum_dtype": "fp32"},
        "communication_data_type": "fp32",
    }


@more
def test_every_rank_loads_the_environment_of_its_host(two_fabrics, tmp_path):
    plan = builders.plan(two_fabrics, tp=2, pp=3, microbatches=2, **PLAYED)
    folder.write(exporting.export(plan, "deepspeed"), tmp_path / "launch")
    script = "import os, sys, pathlib\n"
    script += "print(os.environ['NCCL_IB_DISABLE'], os.environ['RANK'], sys.argv[1:], pathlib.Path(sys.path[-1]).name)\n"
    train = tmp_path / "train.py"
    train.write_text(f"import torch.distributed\n{script}")
    variables = os.environ | {"HOLMES_HOST": "ro-node0.site.example", "RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "6"}
    line = [sys.executable, tmp_path / "launch" / "holmes_rank.py", tmp_path / "train.py", "--steps", "3"]
    ran = subprocess.run(line, env=variables, check=True, capture_output=True, text=True)
    assert ran.stdout == "1 5 ['--steps', '3'] launch\n"
    train.write_text(script)
    lost = subprocess.run(line, env=variables | {"HOLMES_HOST": "other"}, check=False, capture_output=True, text=True)
    assert lost.returncode == 1
    names = ", ".join(sorted(path.name.removesuffix(".env") for path in (tmp_path / "launch" / "env").iterdir()))
    assert lost.stderr == f"holmes_rank: other is none of {names}; HOLMES_HOST may name it\n"


def test_what_deepspeed_does_at_other_times_is_reported(one_fabric):
    lines = deepspeed.launch(builders.plan(one_fabric, tp=2, pp=2, dp=2, sequence_parallel=True, **PLAYED)).assumed
    assert lines == (
        "You provide the layers: 4 of hidden size 96 with 24 heads, 24 of keys and values, gelu MLPs of 384; vocabulary 768, "
        "sequences of 64, embeddings not tied, attention flash.",
        "They are sharded along the topology's axis model (tp 2), with sequence parallelism.",
        "BF16_Optimizer all-reduces full gradients, then shards the optimizer; the plan reduce-scatters them.",
        "Gradients are reduced after the last backward; the plan's step assumes overlap_grad_reduce.",
        "Weights are gathered after the optimizer; the plan's step assumes overlap_param_gather.",
    )


def test_optimizer_state_on_the_host_is_written(one_fabric):
    plan = builders.plan(one_fabric, dp=2, zero_stage=2, offload=("optimizer",))
    assert json.loads(written(plan, "ds_config.json"))["zero_optimization"] == {
        "stage": 2, "overlap_comm": True, "offload_optimizer": {"device": "cpu", "pin_memory": True},
    }  # fmt: skip
    (line,) = (line for line in deepspeed.launch(plan).assumed if "CPUAdam" in line)
    assert (
        line == "The optimizer is DeepSpeedCPUAdam. Gradients go to the host in the backward; in the plan they do so after it."
    )


def test_the_capacity_of_experts_is_for_the_layers_to_keep(one_fabric):
    shape = {"experts": 4, "experts_per_token": 2}
    plan = builders.plan(one_fabric, dp=2, shape=shape, capacity_factor=1.25, pad_to_capacity=True)
    line = "An expert drops the tokens above 1.25 times the mean, and is padded up to that: this changes what is trained."
    assert line in deepspeed.launch(plan).assumed


def test_without_a_pipeline_your_layers_recompute_as_many_as_the_plan_does(one_fabric):
    plan = builders.plan(one_fabric, recompute="full", recompute_layers=(1,))
    launch, layers = deepspeed.launch(plan), plan.workload.model.layers
    assert (
        f"recompute full (1 of {layers} layers) must be done by the layers (deepspeed.checkpointing.checkpoint)."
        in launch.assumed
    )


REFUSED = [
    ({"dp": 2, "microbatches": (3, 5)},
     "num_microbatches 3, 5: gradient_accumulation_steps is one number; --strategy holmes, or --dp that divides the batch"),
    ({"cp": 2}, "cp 2: its topology has the axes pipe, data and model; --cp 1"),
    ({"dp": 2, "ep": 2, "shape": {"experts": 4, "experts_per_token": 2}},
     "ep 2: its topology has the axes pipe, data and model; --ep 1"),
    ({"dp": 4, "zero_shard_size": 2}, "zero_shard_size 2: ZeRO shards over all of dp; 4"),
    ({"schedule": "gpipe", "microbatches": 2},
     "schedule gpipe with pp 1: each microbatch's backward follows its forward; 1f1b"),
    ({"pp": 2}, "schedule 1f1b: it sends a forward's message after the next gradient's receive; --schedule 1f1b-deepspeed"),
    ({"pp": 2, "schedule": "zb-h1"}, "schedule zb-h1: TrainSchedule is 1F1B; --schedule 1f1b-deepspeed"),
    ({"pp": 2, "dp": 2, "zero_stage": 2} | PLAYED,
     "zero_stage 2 with pp 2: its pipelines support ZeRO 0 and 1; --zero-stage 1"),
    ({"pp": 2, "recompute": "selective", "attention": "unfused"} | PLAYED,
     "recompute selective: a pipeline recomputes whole layers; none or full"),
    ({"pp": 2, "recompute": "full", "recompute_layers": (1,)} | PLAYED,
     "recompute_layers: its activation_checkpoint_interval is one for all layers; none, to recompute all layers"),
    ({"gradient_precision": "fp16"}, "gradient_precision fp16 with bf16: gradients have the same or fp32; bf16 or fp32"),
    ({"zero_stage": 0}, "gradient_precision fp32 with bf16: without ZeRO both are equal; --zero-stage 1"),
    ({"pp": 2, "offload": ("optimizer",)} | PLAYED,
     "offload optimizer with pp 2: offload_optimizer was not tried in its pipelines; --pp 1"),
    ({"zero_stage": 0, "gradient_precision": "bf16", "offload": ("optimizer",)},
     "offload optimizer with zero_stage 0: it needs a sharded optimizer; --zero-stage 1"),
    ({"pp": 2, "dp": 2, "zero_stage": 0, "gradient_precision": "bf16"} | PLAYED,
     "zero_stage 0 with bf16 and pp 2: BF16_Optimizer shards its state; --zero-stage 1"),
]  # fmt: skip


@pytest.mark.parametrize(("facts", "line"), REFUSED, ids=[line.split(":")[0] for _, line in REFUSED])
def test_what_it_cannot_express_is_refused(one_fabric, facts, line):
    assert list(exporters.unsupported("deepspeed", builders.plan(one_fabric, **facts))) == [line]


def test_virtual_stages_are_refused(one_fabric):
    plan = builders.plan(one_fabric, pp=2, vpp=2, schedule="interleaved", microbatches=2)
    assert list(exporters.unsupported("deepspeed", plan)) == [
        "vpp 2: a pipeline rank has one stage; --vpp 1",
        "schedule interleaved: TrainSchedule is 1F1B; --schedule 1f1b-deepspeed",
    ]


@pytest.mark.parametrize("precision", ["fp8", "tf32"])
def test_a_precision_that_it_does_not_train_in_is_refused(precision):
    spec = device("new", peak=((precision, 1e14), ("bf16", 1e14), ("fp32", 1e13)))
    plan = builders.plan(fleet(cluster(spec=spec)), precision=precision)
    assert list(exporters.unsupported("deepspeed", plan)) == [
        f"precision {precision}: its models are bf16, fp16 or fp32; one of them"
    ]


def test_pipelines_inside_a_fabric_are_refused_where_all_ranks_are_not_in_one(two_fabrics):
    """Two pipelines, each under a fabric of its own; DeepSpeed's messages would all go over sockets."""
    ib, ro = two_fabrics.clusters
    machines = replace(two_fabrics, clusters=(ib, replace(ro, nodes=2)))
    order = (0, 1, 4, 5, 2, 3, 6, 7)
    devices = builders.plan(machines, tp=2, pp=4, **PLAYED).placement
    plan = builders.plan(machines, tp=2, pp=2, dp=2, placement=tuple(devices[rank] for rank in order), **PLAYED)
    assert list(exporters.unsupported("deepspeed", plan)) == [
        "groups pp over infiniband: messages use the group of all ranks, over Socket; one fabric for all ranks"
    ]


def test_devices_of_two_vendors_are_refused(two_fabrics):
    vendors = zip(two_fabrics.clusters, ("nvidia", "amd"), strict=True)
    made = [replace(c, node=replace(c.node, device=device(f"chip-{name}", vendor=name))) for c, name in vendors]
    plan = builders.plan(replace(two_fabrics, clusters=tuple(made)), tp=2, pp=3, microbatches=2, **PLAYED)
    assert list(exporters.unsupported("deepspeed", plan)) == [
        "vendors amd, nvidia: it has one accelerator for all ranks; a plan on devices of one vendor"
    ]


def test_layers_of_the_users_own_may_be_special():
    """DeepSpeed's parser takes any layers: the launch says what they are."""
    feature = features.Feature("", {"tp": 1, "dp": 4, "num_microbatches": (4,) * 4}, model=features.EQUAL | {"mtp_layers": 1})
    plan = features.plan_of(feature, "1f1b-deepspeed")
    assert list(exporters.unsupported("deepspeed", plan)) == []
    assumed = exporters.get("deepspeed").launch(plan).assumed
    assert "The last of [embedding, *layers, head] has 1 layers that predict further tokens." in assumed
    assert any(line.startswith("They have attention mla, kv_lora_rank 256, ") for line in assumed)
