"""What is written for FlagScale, by hand; its own code reads every export in tests/peers/flagscale.py."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
import yaml

from holmes_sim import exporters
from holmes_sim.exporters import flagscale
from holmes_sim.launching import folder
from tests import features

BY_NAME = {feature.name: feature for feature in features.FEATURES}


def plan_of(name="plain", config=(), **facts):
    feature = BY_NAME[name]
    return features.plan_of(replace(feature, config=feature.config | dict(config), **facts))


def read(plan, name):
    return yaml.safe_load(flagscale.launch(plan).files[name].content)


UNLIKE = {"tp": 2, "recompute": "full", "recompute_layers": (5, 0)}
"""What makes the two stages of a plan unlike, so that each is a mesh."""


def test_stages_that_are_alike_are_launched_as_by_megatron_lm():
    plan = plan_of("pipeline across fabrics (TCP)", layers=(13, 11))
    assert read(plan, "conf/train/plan.yaml") == {
        "system": {
            "tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2, "context_parallel_size": 1,
            "sequence_parallel": True, "pipeline_model_parallel_layout": "Et*13|t*11L", "bf16": True,
            "use_distributed_optimizer": True, "overlap_grad_reduce": True, "overlap_param_gather": True,
            "attention_backend": "flash", "micro_batch_size": 1, "global_batch_size": 16, "seq_length": 2048,
            "num_layers": 24, "hidden_size": 2304, "ffn_hidden_size": 6144, "num_attention_heads": 24, "kv_channels": 96,
            "max_position_embeddings": 2048, "position_embedding_type": "rope", "swiglu": True, "disable_bias_linear": True,
            "normalization": "RMSNorm", "attention_dropout": 0.0, "hidden_dropout": 0.0,
            "untie_embeddings_and_output_weights": True,
        },
        "model": {"use_mcore_models": True, "transformer_impl": "transformer_engine"},
        "data": {"make_vocab_size_divisible_by": 25600},
    }  # fmt: skip
    assert flagscale.launch(plan).files["hostfile"].content == "a-node0 slots=4\nb-node0 slots=4\n"


@pytest.mark.parametrize(
    "plan",
    [
        plan_of("virtual stages"),
        plan_of("context parallel"),
        plan_of("ZeRO 1 shared by half of dp"),
        plan_of(config={"tp": 1, "pp": 4}, layers=(6,) * 4),
        plan_of(layers=(24, 0)),
    ],
    ids=["virtual stages", "context parallel", "shared by half of dp", "stages on shared hosts", "a stage without layers"],
)
def test_stages_that_are_alike_have_what_megatron_lm_has(plan):
    assert list(exporters.unsupported("flagscale", plan)) == list(exporters.unsupported("megatron", plan)) == []


def test_a_mesh_for_every_stage_where_they_are_unlike():
    plan = plan_of("pipeline across fabrics (TCP)", config=UNLIKE, layers=(13, 11))
    assert read(plan, "conf/train/plan.yaml") == {
        "system": {
            "tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2, "context_parallel_size": 1,
            "sequence_parallel": True, "bf16": True, "use_distributed_optimizer": True, "overlap_grad_reduce": True,
            "overlap_param_gather": True, "attention_backend": "flash", "recompute_granularity": "full",
            "recompute_method": "block", "recompute_num_layers": 5,
            "recompute_granularity_per_stage_micro_batch": [[1, 8, 1], [1, 8, 0]],
            "recompute_method_per_stage_micro_batch": [[1, 8, 1], [1, 8, 1]],
            "recompute_num_layers_per_stage_micro_batch": [[1, 8, 5], [1, 8, 0]],
        },
        "model": {
            "use_mcore_models": True, "transformer_impl": "transformer_engine", "micro_batch_size": 1, "global_batch_size": 16,
            "seq_length": 2048, "num_layers": 24, "hidden_size": 2304, "ffn_hidden_size": 6144, "num_attention_heads": 24,
            "kv_channels": 96, "max_position_embeddings": 2048, "position_embedding_type": "rope", "swiglu": True,
            "disable_bias_linear": True, "normalization": "RMSNorm", "attention_dropout": 0.0, "hidden_dropout": 0.0,
            "untie_embeddings_and_output_weights": True,
            "hetero": {
                "enable_hetero": True, "hetero_device_types": ["stage0", "stage1"], "hetero_current_device_type": "stage0",
                "hetero_process_meshes": [2, 1, 1, 2, 1, 2, 1, 1, 2, 1], "hetero_pipeline_layer_split": [13, 11],
            },
        },
        "data": {"make_vocab_size_divisible_by": 25600},
    }  # fmt: skip
    assert flagscale.launch(plan).files["hostfile"].content == (
        "a-node0 slots=4 type=stage0\n"
        "b-node0 slots=4 type=stage1\n"
    )  # fmt: skip


def test_capacity_of_experts_is_among_the_arguments():
    facts = {"ep": 2, "capacity_factor": 1.25, "pad_to_capacity": True}
    found = flagscale.train(features.plan_of(features.Feature("", facts, model=features.EXPERTS)))["system"]
    assert (found["moe_expert_capacity_factor"], found["moe_pad_expert_input_to_capacity"]) == (1.25, True)


def test_a_mesh_without_layers_is_refused():
    (line,) = exporters.unsupported("flagscale", plan_of("pipeline across fabrics (TCP)", config=UNLIKE, layers=(24, 0)))
    assert line == "stages[1] without layers: its list of layers by stage is not known to allow 0; stages with layers"


def test_hosts_are_ranked_in_order_and_have_their_environment():
    plan = plan_of("hosts of unlike numbers of ranks")
    found = read(plan, "conf/plan.yaml")
    assert found["defaults"] == [{"train": "plan"}, "_self_"]
    assert found["experiment"]["runner"] == {
        "backend": "torchrun", "nnodes": 3, "hostfile": "???", "rdzv_backend": "static", "master_addr": "a-node0",
        "master_port": 29500,
    }  # fmt: skip
    network = {"NCCL_IB_HCA": "=mlx5_0,mlx5_1", "NCCL_SOCKET_IFNAME": "=eth0", "GLOO_SOCKET_IFNAME": "eth0"}
    assert found["experiment"]["envs"] == {
        "CUDA_DEVICE_MAX_CONNECTIONS": 1,
        "node_specific": {
            "a-node0": network | {"CUDA_VISIBLE_DEVICES": "0,1,2"},
            "a-node1": network | {"CUDA_VISIBLE_DEVICES": "0,1,2,3"},
            "a-node2": network | {"CUDA_VISIBLE_DEVICES": "0"},
        },
    }


def test_hosts_that_are_alike_share_their_environment():
    environments = read(plan_of(nodes=("a/node0", "a/node1")), "conf/plan.yaml")["experiment"]["envs"]
    assert environments == {
        "CUDA_DEVICE_MAX_CONNECTIONS": 1, "NCCL_IB_HCA": "=mlx5_0,mlx5_1", "NCCL_SOCKET_IFNAME": "=eth0",
        "GLOO_SOCKET_IFNAME": "eth0", "CUDA_VISIBLE_DEVICES": "0,1,2,3",
    }  # fmt: skip


def test_hosts_of_a_type_that_are_alike_share_their_environment():
    plan = plan_of(config=UNLIKE | {"tp": 4}, nodes=("a/node0", "a/node1", "b/node0", "b/node1"))
    environments = read(plan, "conf/plan.yaml")["experiment"]["envs"]
    assert sorted(environments["device_type_specific"]) == ["stage0", "stage1"]
    assert "node_specific" not in environments


def test_places_that_share_hosts_are_one_mesh():
    # Six pipeline ranks of two ranks on three hosts of four: each host holds two of them, which works without replicas.
    config = {"dp": 1, "pp": 6, "num_microbatches": (16,), "recompute": "full", "recompute_layers": (1, 0, 0, 0, 0, 0)}
    plan = plan_of(config=config, layers=(4,) * 6, nodes=("a/node0", "a/node1", "a/node2"), order=tuple(range(12)))
    hetero = read(plan, "conf/train/plan.yaml")["model"]["hetero"]
    assert hetero["hetero_device_types"] == ["stages0-1", "stages2-3", "stages4-5"]
    assert hetero["hetero_process_meshes"] == [2, 1, 1, 1, 2, 2, 1, 1, 1, 2, 2, 1, 1, 1, 2]
    assert not list(exporters.unsupported("flagscale", plan))


def test_run_hands_the_files_to_flagscale(tmp_path):
    folder.write(flagscale.launch(plan_of()), tmp_path / "out")
    (tmp_path / "python").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "python").chmod(0o755)
    output = subprocess.run(
        ["bash", "out/run.sh", "action=dryrun"],
        cwd=tmp_path, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=True, capture_output=True, text=True,
    ).stdout.splitlines()  # fmt: skip
    out = tmp_path / "out"
    assert output == [
        "run.py", "--config-path", f"{out}/conf", "--config-name", "plan", f"experiment.runner.hostfile={out}/hostfile",
        f"experiment.task.entrypoint={out}/entry.py", "action=dryrun",
    ]  # fmt: skip


def test_the_entry_puts_flagscales_script_behind_the_shim(tmp_path):
    (tmp_path / "entry.py").write_text(flagscale.ENTRY)
    (tmp_path / "holmes_launch.py").write_text("import sys; print(sys.argv[1:], __name__)")
    output = subprocess.run([sys.executable, tmp_path / "entry.py", "--a", "1"], check=True, capture_output=True, text=True)
    assert output.stdout == "['flagscale/train/train_gpt.py', '--a', '1'] __main__\n"


@pytest.mark.parametrize(
    ("plan", "line"),
    [
        (plan_of("virtual stages", config=UNLIKE | {"recompute_layers": (5, 0, 0, 0)}),
         "vpp 2: its meshes of device types have no virtual stages; vpp 1 (--vpp 1)"),
        (plan_of("pipeline across fabrics (TCP)", config=UNLIKE | {"tp": 1, "cp": 2}),
         "cp 2: its meshes of device types have no context parallelism; cp 1"),
        (plan_of(config=UNLIKE | {"tp": 1, "pp": 2, "dp": 4, "num_microbatches": (4,) * 4, "zero_shard_size": 2}),
         "zero_shard_size 2: all replicas shard the optimizer state; no zero_shard_size"),
        (plan_of(config={"tp": 1, "pp": 4, "recompute": "full", "recompute_layers": (1, 0, 0, 0)}, layers=(6,) * 4),
         "pipeline ranks 0 to 1 on shared hosts: between meshes it joins the replicas of a mesh with several pipeline ranks in "
         "a wrong order; hosts with one pipeline rank each, or dp 1"),
        (plan_of("replicas of unlike microbatches"),
         "num_microbatches 9, 7: all replicas have the same number; --strategy holmes, or --dp that divides the batch"),
    ],
)  # fmt: skip
def test_refusals(plan, line):
    assert list(exporters.unsupported("flagscale", plan)) == [line]


def unlike(tied=False, **config):
    feature = BY_NAME["pipeline across fabrics (TCP)"]
    degrees = {"tp": 2, "stage_tp": (2, 1)} | config
    return features.plan_of(replace(feature, config=degrees, model={"tied_embeddings": tied}))


def test_a_mesh_has_the_tp_of_its_stage():
    found = read(unlike(), "conf/train/plan.yaml")
    assert found["model"]["hetero"]["hetero_process_meshes"] == [2, 1, 1, 2, 1, 1, 1, 1, 2, 1]
    assert found["system"]["tensor_model_parallel_size"] == 2
    assert found["data"]["make_vocab_size_divisible_by"] == 25600
    assert list(exporters.unsupported("flagscale", unlike())) == []
    launch = flagscale.launch(unlike())
    assert launch.files["hostfile"].content == "a-node0 slots=4 type=stage0\nb-node0 slots=2 type=stage1\n"
    assert "The tokenizer has more than 25600 tokens, or meshes of unlike tp would pad them unlike." in launch.assumed


def test_what_it_cannot_do_with_unlike_tp():
    (whole,) = exporters.unsupported("flagscale", unlike(sequence_parallel=False))
    assert whole == (
        "sequence_parallel false: between meshes of unlike tp it sends slices of the sequence; sequence_parallel true"
    )
    (tied,) = exporters.unsupported("flagscale", unlike(tied=True, zero_stage=0, overlap_param_gather=False))
    assert tied == ("stage_tp 2, 1: it ties the embedding of end stages of equal tp; the same for the first and the last stage")


def mixture(order=tuple(range(8)), **config):
    """Two stages of a mixture on a host each, with two replicas of tp 2 unless said."""
    feature = replace(BY_NAME["pipeline across fabrics (TCP)"], config={"tp": 2, "dp": 2} | config, order=order)
    return features.plan_of(replace(feature, model={"tied_embeddings": False, "experts": 8, "experts_per_token": 2}))


@pytest.mark.parametrize(
    ("config", "order", "meshes", "etp", "by_mesh"),
    [
        ({"ep": 4, "etp": 1, **UNLIKE}, range(8), [2, 1, 4, 2, 1, 2, 1, 4, 2, 1], 1, None),
        ({"ep": 4, "stage_ep": (4, 2), "etp": 1}, range(8), [2, 1, 4, 2, 1, 2, 1, 2, 2, 1], 1, None),
        ({"ep": 2, "stage_ep": (2, 4), "etp": 2, "stage_etp": (2, 1)}, range(8), [2, 1, 2, 2, 1, 2, 1, 4, 2, 1], 2, [2, 1]),
        ({"stage_tp": (2, 1), "ep": 2}, (0, 1, 2, 3, 4, 5), [2, 1, 2, 2, 1, 1, 1, 2, 2, 1], 2, [2, 1]),
    ],
)
def test_a_mesh_divides_experts_as_its_stage(config, order, meshes, etp, by_mesh):
    """Its own code finds the ep groups of these plans by these numbers (tests/peers/flagscale.py)."""
    plan = mixture(tuple(order), **config)
    assert list(exporters.unsupported("flagscale", plan)) == []
    found = read(plan, "conf/train/plan.yaml")
    assert found["model"]["hetero"]["hetero_process_meshes"] == meshes
    assert found["system"]["expert_tensor_parallel_size"] == etp
    assert found["system"].get("expert_tensor_parallel_size_per_process_mesh") == by_mesh


@pytest.mark.parametrize(
    ("config", "model", "layers", "lines"),
    [
        (features.MESHES, features.EQUAL | {"n_group": 4, "topk_group": 2}, (), []),
        (features.MESHES, {"sliding_window": 128, "attention_sinks": True}, (), []),
        (features.TWO_STAGES, features.LITE, (), []),
        (features.MESHES, features.LITE, (),
         ["model lean-1.8b: its layers differ, and a mesh of one pipeline rank builds the first ones; a model of equal "
          "layers, or equal stages"]),
        (features.TWO_STAGES, features.EQUAL | {"mtp_layers": 1}, (),
         ["mtp_layers 1: with meshes it builds them on the last stage of the first mesh; 0"]),
    ],
)  # fmt: skip
def test_meshes_take_models_whose_layers_they_build(config, model, layers, lines):
    """Its own code begins the layers of a mesh of one pipeline rank with the first one (tests/peers/flagscale.py)."""
    own = {key: value for key, value in config.items() if key not in ("nodes", "order")}
    feature = features.Feature("", own, layers, config["nodes"], config.get("order", ()), model=features.EXPERTS | model)
    assert list(exporters.unsupported("flagscale", features.plan_of(feature))) == lines


def test_experts_are_divided_on_all_meshes_or_on_none():
    (line,) = exporters.unsupported("flagscale", mixture(ep=2, stage_ep=(2, 1)))
    assert line == "stage_ep 2, 1: ep is 1 on all its meshes or on none; 2 or more on each stage"


@pytest.mark.parametrize(
    ("name", "config"),
    [("tp", {"tp": 2, "stage_tp": (2, 1, 1), "num_microbatches": (16,)}),
     ("dp", {"tp": 1, "stage_dp": (2, 1, 1), "num_microbatches": (8,), "microbatch_size": 2})],
)  # fmt: skip
def test_a_mesh_has_one_tp_and_one_dp(name, config):
    config = {"dp": 1, "pp": 3} | config
    plan = plan_of(config=config, layers=(8,) * 3, nodes=("a/node0",), order=(0, 1, 2, 3))
    lines = list(exporters.unsupported("flagscale", plan))
    assert lines == [
        f"pipeline ranks 0 to 2 on shared hosts: a mesh has one {name}; hosts whose pipeline ranks have one {name}"
    ]


def split(order, **config):
    """Two replicas of microbatches of two samples: one rank a replica on the first stage, and two on the second."""
    feature = BY_NAME["pipeline across fabrics (TCP)"]
    degrees = {"tp": 1, "stage_dp": (2, 4), "microbatch_size": 2, "num_microbatches": (4, 4)} | config
    return features.plan_of(replace(feature, config=degrees, order=order))


@pytest.mark.parametrize(
    ("config", "order", "meshes", "size"),
    [
        ({}, (0, 1, 4, 5, 6, 7), [1, 1, 1, 2, 1, 1, 1, 1, 4, 1], 2),
        ({"stage_dp": (4, 2)}, (0, 1, 2, 3, 4, 5), [1, 1, 1, 4, 1, 1, 1, 1, 2, 1], 1),
        ({"tp": 2, "stage_tp": (2, 1)}, tuple(range(8)), [2, 1, 1, 2, 1, 1, 1, 1, 4, 1], 2),
    ],
)
def test_a_mesh_has_the_dp_of_its_stage(config, order, meshes, size):
    """micro_batch_size is that of the first mesh, which loads the data; its parser divides dp x micro_batch_size samples among
    the dp of every mesh (flagscale/train/arguments.py, pre_validate_args)."""
    plan = split(order, **config)
    assert list(exporters.unsupported("flagscale", plan)) == []
    found = read(plan, "conf/train/plan.yaml")
    assert found["model"]["hetero"]["hetero_process_meshes"] == meshes
    assert (found["model"]["micro_batch_size"], found["model"]["global_batch_size"]) == (size, 16)
    assert all(size * meshes[3] % dp == 0 for dp in meshes[3::5])


def test_all_ranks_of_a_stage_of_larger_dp_shard_the_optimizer_state():
    (line,) = exporters.unsupported("flagscale", split((0, 1, 4, 5, 6, 7), zero_shard_size=2))
    assert line == "zero_shard_size 2: all replicas shard the optimizer state; no zero_shard_size"


def test_stages_recompute_unlike_numbers_of_layers():
    """The lists that its parser reads (flagscale/train/arguments.py, _parse_recompute_refined_config): stages, microbatches and
    value, once for each stage."""
    config = {"tp": 2, "recompute": "full", "recompute_layers": (5, 0)}
    plan = plan_of("pipeline across fabrics (TCP)", config=config, layers=(13, 11))
    assert list(exporters.unsupported("flagscale", plan)) == []
    found = read(plan, "conf/train/plan.yaml")["system"]
    assert {key: value for key, value in found.items() if key.startswith("recompute")} == {
        "recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 5,
        "recompute_granularity_per_stage_micro_batch": [[1, 8, 1], [1, 8, 0]],
        "recompute_method_per_stage_micro_batch": [[1, 8, 1], [1, 8, 1]],
        "recompute_num_layers_per_stage_micro_batch": [[1, 8, 5], [1, 8, 0]],
    }  # fmt: skip
    alike = plan_of("pipeline across fabrics (TCP)", config=config | {"recompute_layers": (5, 5)}, layers=(13, 11))
    assert "recompute_num_layers_per_stage_micro_batch" not in read(alike, "conf/train/plan.yaml")["system"]


def test_recomputed_modules_are_a_list():
    """Its runner writes the values of a list one after the other, as --recompute-modules takes them."""
    plan = plan_of(config={"recompute": "selective", "recompute_modules": ("layernorm", "mlp")})
    assert list(exporters.unsupported("flagscale", plan)) == []
    found = read(plan, "conf/train/plan.yaml")["system"]
    assert (found["recompute_granularity"], found["recompute_modules"]) == ("selective", ["layernorm", "mlp"])


def test_the_optimizer_on_the_hosts_has_all_cpus_of_a_host():
    """torchrun gives each rank one thread; OmegaConf resolves `${` unless a backslash is before it."""
    plan = features.plan_of(features.Feature("", {"offload": ("optimizer",)}))
    assert list(exporters.unsupported("flagscale", plan)) == []
    assert flagscale.train(plan)["system"]["optimizer_cpu_offload"] is True
    (line,) = flagscale.experiment(plan)["experiment"]["cmds"]["before_start"].splitlines()
    assert line.startswith(
        'export OMP_NUM_THREADS="\\${OMP_NUM_THREADS:-$(cpus=$(nproc) && echo $((cpus > 4 ? cpus / 4 : 1)))}"'
    )
    assert "cmds" not in flagscale.experiment(plan_of("plain"))["experiment"]


def test_its_pairs_run_as_plans_count_them():
    """Unlike torchtitan's, which run one pass after the other."""
    every = {name: exporters.target(name).overlaps_pairs for name in exporters.frameworks()}
    assert [name for name, overlaps in every.items() if overlaps] == ["flagscale"]
    assert exporters.joined(("flagscale",)).overlaps_pairs
    assert not exporters.joined(("flagscale", "torchtitan")).overlaps_pairs


def test_sizes_of_a_hierarchy_are_a_list():
    """Of one string its runner makes one word, which is no integer."""
    plan = plan_of("context parallel", config={"cp_algo": "hybrid"})
    assert list(exporters.unsupported("flagscale", plan)) == []
    assert read(plan, "conf/train/plan.yaml")["system"]["hierarchical_context_parallel_sizes"] == [2, 1]


@pytest.mark.parametrize(
    ("config", "model", "line"),
    [
        ({"tp": 4, "pp": 1, "dp": 2}, {"kv_heads": 2},
         "kv_heads 2: its version of Megatron-LM wants a multiple of tp 4; a tp that divides them"),
        ({"etp": 1, "ep": 4}, features.EXPERTS | {"mlp": "gelu"},
         "mlp gelu: its version of Megatron-LM has no experts with biases; mlp swiglu or relu2"),
    ],
)  # fmt: skip
def test_what_its_version_of_megatron_lm_does_not_take(config, model, line):
    """transformer_config.py of 8479eb35, lines 776 and 1320; d98e8a64 takes both."""
    plan = features.plan_of(features.Feature("", config, model=model))
    assert list(exporters.unsupported("flagscale", plan)) == [line]
    assert not list(exporters.unsupported("megatron", plan))
