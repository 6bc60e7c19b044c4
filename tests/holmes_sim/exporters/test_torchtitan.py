"""torchtitan: the config function, the CSV of a schedule, and what is refused (for torchtitan itself: tests/peers)."""

from __future__ import annotations

import ast
from dataclasses import replace
from types import SimpleNamespace

import pytest

from holmes_sim import exporters
from holmes_sim.exporters import torchtitan
from holmes_sim.launching import torchtitan_schedule
from sim.hardware.cluster import Trunk
from sim.plan import schedules
from sim.plan.parallel_config import ParallelConfig
from sim.plan.prediction import Prediction
from sim.plan.program import PAIR, WHOLE
from sim.workload.launch_facts import LaunchFacts
from tests import builders, features
from tests.builders import device, fleet, nic

LLAMA = {"mlp": "swiglu", "kv_heads": 8}
EXPERTS = LLAMA | {"experts": 4, "experts_per_token": 2}
PEAK = tuple((name, 1e14) for name in ("bf16", "fp16", "fp32", "fp8", "mxfp8", "nvfp4"))
WIDE = LLAMA | {"hidden": 768, "ffn_hidden": 1024}


def of(vendor, machines):
    """The fleet with devices of a vendor."""
    spec = device("chip", vendor=vendor, peak=PEAK)
    made = (replace(one, node=replace(one.node, device=spec)) for one in machines.clusters)
    return replace(machines, clusters=tuple(made))


@pytest.fixture
def two_fabrics():
    """One host of two devices under InfiniBand, one under RoCE, Ethernet between them."""
    nics = {kind: (nic(kind), nic("ethernet", 1e9)) for kind in ("infiniband", "roce")}
    clusters = (builders.cluster(name, devices=2, nics=nics[kind]) for name, kind in (("ib", "infiniband"), ("ro", "roce")))
    return fleet(*clusters, trunks=(Trunk(("ib", "ro"), "ethernet", 1e9, 1e-4),))


@pytest.fixture
def one_fabric():
    """Four hosts of four devices."""
    return fleet(builders.cluster("c", nodes=4, devices=4, spec=device(peak=PEAK)))


def written(plan, name=torchtitan.MODULE):
    assert list(exporters.unsupported("torchtitan", plan)) == []
    return torchtitan.launch(plan).files[name].content


def settings(plan):
    """Statement by statement what the config function sets: target -> the source of its value."""
    function = next(part for part in ast.parse(written(plan)).body if getattr(part, "name", "") == "plan")
    found = [part for part in function.body if isinstance(part, ast.Assign)]
    return {ast.unparse(part.targets[0]): ast.unparse(part.value) for part in found}


def parts(plan):
    """What the generated function `parts` returns."""
    found = [part for part in ast.parse(written(plan)).body if getattr(part, "name", "") == "parts"]
    space = {}
    exec(compile(ast.Module(found, []), "holmes_plan.py", "exec"), space)
    return space["parts"]()


def test_an_uneven_pipeline_across_fabrics(two_fabrics):
    plan = builders.plan(two_fabrics, tp=2, pp=2, layers=(3, 1), microbatches=4, microbatch_size=2, shape=LLAMA, seq_len=128)
    assert parts(plan) == [
        ["tok_embeddings", "layers.0", "layers.1", "layers.2"],
        ["layers.3", "norm", "lm_head"],
    ]
    assert settings(plan) == {
        "config": "llama3_8b()",
        "config.model_spec": "replace(config.model_spec, flavor='tiny', model=model())",
        "config.loss.loss_fn.global_vocab_size": "768",
        "config.activation_checkpoint": "None",
        "training": "config.training",
        "training.seq_len": "128",
        "training.local_batch_size": "8",
        "training.disable_cuda_graphs": "True",
        "training.global_batch_size": "8",
        "training.mixed_precision_param": "'bfloat16'",
        "parallelism": "config.parallelism",
        "parallelism.spmd_backend": "'partial_dtensor'",
        "parallelism.data_parallel_replicate_degree": "1",
        "parallelism.data_parallel_shard_degree": "1",
        "parallelism.fsdp_reshard_after_forward": "'never'",
        "parallelism.context_parallel_degree": "1",
        "parallelism.tensor_parallel_degree": "2",
        "parallelism.enable_sequence_parallel": "False",
        "parallelism.pipeline_parallel_degree": "2",
        "parallelism.module_fqns_per_model_part": "parts()",
        "parallelism.pipeline_parallel_microbatch_size": "2",
        "parallelism.pipeline_parallel_schedule": "'1F1B'",
    }


def test_the_model_is_of_the_plans_shape(one_fabric):
    text = written(builders.plan(one_fabric, tp=2, layers=(5,), shape=LLAMA | {"ffn_hidden": 200}))
    model = next(part for part in ast.parse(text).body if getattr(part, "name", "") == "model")
    assert ast.unparse(model.body[1]) == "dim, vocab = (96, 768)"
    layers = next(word.value for word in model.body[2].value.keywords if word.arg == "layers")
    given = {word.arg: ast.unparse(word.value) for word in layers.keywords}
    assert given == {
        "n_layers": "5", "dim": "dim", "n_heads": "24", "n_kv_heads": "8", "hidden_dim": "200", "attn_backend": "'flex'",
        "rope": "ComplexRoPE.Config(dim=4, max_seq_len=131072, theta=500000, scaling='llama')",
    }  # fmt: skip
    assert "enable_weight_tying=False" in text
    assert "param_init=llama3._EMBEDDING_INIT" in text


def test_a_tied_embedding_without_a_pipeline_is_initialised_once(one_fabric):
    text = written(builders.plan(one_fabric, shape=LLAMA | {"tied_embeddings": True}))
    assert "enable_weight_tying=True" in text
    assert "param_init=llama3._EMBEDDING_SKIP_INIT" in text


def test_virtual_stages_of_unlike_layers_stand_in_pipeline_order(one_fabric):
    plan = builders.plan(one_fabric, pp=2, vpp=2, layers=(1, 2, 2, 1), schedule="interleaved", microbatches=4, shape=LLAMA)
    assert parts(plan) == [
        ["tok_embeddings", "layers.0"],
        ["layers.1", "layers.2"],
        ["layers.3", "layers.4"],
        ["layers.5", "norm", "lm_head"],
    ]
    assert settings(plan)["parallelism.pipeline_parallel_schedule"] == "'Interleaved1F1B'"


@pytest.mark.parametrize(
    ("config", "replicate", "shard", "reshard"),
    [
        ({"dp": 4, "pp": 2, "zero_stage": 0}, "4", "1", "never"),
        ({"dp": 4, "pp": 2, "zero_stage": 1}, "1", "4", "never"),
        ({"dp": 4, "pp": 2, "zero_stage": 1, "zero_shard_size": 2}, "2", "2", "never"),
        ({"dp": 2, "cp": 4, "pp": 2, "zero_stage": 1, "zero_shard_size": 4}, "2", "1", "never"),
        ({"dp": 4, "pp": 1, "zero_stage": 3}, "1", "4", "always"),
    ],
)
def test_zero_is_the_degrees_of_fsdp(one_fabric, config, replicate, shard, reshard):
    numbers = (4,) * config["dp"]
    said = settings(builders.plan(one_fabric, microbatches=numbers, shape=LLAMA, seq_len=1024, **config))
    assert said["parallelism.data_parallel_replicate_degree"] == replicate
    assert said["parallelism.data_parallel_shard_degree"] == shard
    assert said["parallelism.fsdp_reshard_after_forward"] == repr(reshard)


def test_without_a_pipeline_microbatches_are_accumulated(one_fabric):
    said = settings(builders.plan(one_fabric, dp=2, zero_stage=3, microbatches=4, microbatch_size=2, shape=LLAMA))
    assert said["training.local_batch_size"] == "2"
    assert said["training.global_batch_size"] == "16"
    assert not [name for name in said if "pipeline_parallel_schedule" in name or "fqns" in name]


def test_recomputation_of_all_and_fp32(one_fabric):
    plan = builders.plan(one_fabric, recompute="full", precision="fp32", shape=LLAMA)
    assert settings(plan)["config.activation_checkpoint"] == "FullAC.Config()"
    assert settings(plan)["training.mixed_precision_param"] == "'float32'"
    assert "from torchtitan.distributed.activation_checkpoint import FullAC\n" in written(plan)


@pytest.mark.parametrize(("step", "allowed"), [(None, None), (50.0, None), (61.0, "610")])
def test_long_steps_get_the_time_that_they_take(one_fabric, step, allowed):
    plan = builders.plan(one_fabric, shape=LLAMA)
    prediction = Prediction(step or 1.0, 1.0, 1.0, 1.0, 0.5, (1.0,), 0.0, 0.0, 1.0)
    said = settings(plan.annotated(prediction=prediction) if step else plan)
    assert said.get("config.comm.train_timeout_seconds") == allowed


def test_a_zero_bubble_schedule_is_a_table_of_pipeline_ranks(one_fabric):
    plan = builders.plan(one_fabric, pp=3, schedule="zb-h1", microbatches=3, shape=LLAMA)
    assert written(plan, torchtitan_schedule.TIMETABLE).splitlines() == [
        "0F0,0F1,0F2,0I0,0W0,0I1,0W1,0I2,0W2",
        "1F0,1F1,1I0,1F2,1I1,1W0,1I2,1W1,1W2",
        "2F0,2I0,2F1,2I1,2F2,2I2,2W0,2W1,2W2",
    ]
    said = settings(plan)
    assert said["parallelism.pipeline_parallel_schedule"] == "'PipelineScheduleMulti'"
    assert said["parallelism.pipeline_parallel_schedule_csv"] == "str(Path(__file__).with_name('schedule.csv'))"


@pytest.mark.parametrize(
    ("pp", "vpp", "schedule", "microbatches"),
    [(4, 1, "1f1b", 3), (2, 2, "interleaved", 2), (4, 1, "zb-h1", 9), (4, 1, "zb-h2", 2), (3, 1, "zb-h2", 7)],
)
def test_torch_finds_every_table_valid(pp, vpp, schedule, microbatches):
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    config = ParallelConfig(pp=pp, vpp=vpp, schedule=schedule, num_microbatches=(microbatches,))
    rows = torchtitan_schedule.timetable(config).splitlines()
    actions = {pp_rank: [schedules._Action.from_str(word) for word in row.split(",")] for pp_rank, row in enumerate(rows)}
    found = schedules._validate_schedule(actions, pp, pp * vpp, microbatches)
    assert found == {stage: stage % pp for stage in range(pp * vpp)}
    moved = schedules._add_send_recv(actions, lambda stage: stage % pp, pp * vpp)
    schedules._simulate_comms_compute(moved, lambda stage: stage % pp, pp * vpp)  # raises on a deadlock


@pytest.mark.parametrize(
    ("pp", "vpp", "schedule"), [(2, 1, "gpipe"), (4, 1, "gpipe"), (2, 2, "interleaved"), (4, 3, "interleaved")]
)
def test_torch_plays_the_schedules_that_it_has_a_name_for_in_our_order(pp, vpp, schedule):
    visualizer = pytest.importorskip("torch.distributed.pipelining._schedule_visualizer")
    for microbatches in (2 * pp, 3 * pp, 8 * pp):
        rows = visualizer.get_schedule_ops(torchtitan_schedule.SCHEDULES[schedule], pp, microbatches, num_stages_per_rank=vpp)
        theirs = [",".join(str(action) for action in row if action and action.computation_type.value in "FB") for row in rows]
        config = ParallelConfig(pp=pp, vpp=vpp, schedule=schedule, num_microbatches=(microbatches,))
        assert torchtitan_schedule.timetable(config).splitlines() == theirs


@pytest.mark.parametrize(("pp", "microbatches"), [(2, 4), (2, 7), (3, 6), (4, 8), (4, 13), (6, 12)])
def test_torchs_dualpipev_has_our_order(pp, microbatches):
    torch = pytest.importorskip("torch.distributed.pipelining.schedules")
    for rank in range(pp):
        asked = SimpleNamespace(pp_group_size=pp, _n_microbatches=microbatches)
        rows = torch.ScheduleDualPipeV._calculate_single_rank_operations(asked, rank)
        theirs = [one for action in rows for one in action.sub_actions or (action,)]
        ours, whole = [], set()
        for action in schedules.actions("dualpipev", rank, pp, microbatches, 2):
            key = action.stage, action.microbatch
            if action.kind == "B" and action.operation == WHOLE:
                whole.add(key)
            if action.kind != "W" or key not in whole:
                kind = "I" if action.kind == "B" and key not in whole else action.kind
                ours.append(f"{action.stage}{kind}{action.microbatch}")
        assert list(map(str, theirs)) == ours
        pairs = [(str(one.sub_actions[0]), str(one.sub_actions[1])) for one in rows if one.sub_actions]
        assert [first for first, _ in pairs] == [
            f"{one.stage}F{one.microbatch}"
            for one in schedules.actions("dualpipev", rank, pp, microbatches, 2)
            if one.operation == PAIR
        ]


def test_stages_along_a_v_are_named_so_and_exchanges_beside_them_are_not_promised():
    plan = features.plan_of(features.Feature("", features.PAIRED, model=features.EXPERTS))
    assert settings(plan)["parallelism.pipeline_parallel_schedule"] == "'DualPipeV'"
    assert "(stages i and 3 - i are on place i, along a V)" in written(plan, torchtitan.MODULE)
    assert torchtitan_schedule.TIMETABLE not in torchtitan.launch(plan).files
    assert (
        "Schedule dualpipev: torch runs the two passes of a pair one after the other, and each waits for its exchanges of "
        "tokens; in the plan these run beside the other pass."
    ) in torchtitan.launch(plan).assumed


def test_a_named_schedule_has_no_table(one_fabric):
    plan = builders.plan(one_fabric, pp=4, schedule="1f1b", microbatches=4, shape=LLAMA)
    assert torchtitan_schedule.TIMETABLE not in torchtitan.launch(plan).files


def test_a_name_cannot_end_the_text_that_it_stands_in(one_fabric):
    plan = builders.plan(one_fabric, shape=LLAMA)
    named = replace(plan.workload, model=replace(plan.workload.model, name='llama """ \\'))
    text = torchtitan.launch(replace(plan, workload=named)).files[torchtitan.MODULE].content
    assert ast.get_docstring(ast.parse(text)).startswith("llama   on tiny for torchtitan 0.3.0: plan ")


def test_torchrun_starts_torchtitan_with_the_plan(two_fabrics):
    plan = builders.plan(two_fabrics, tp=2, pp=2, microbatches=2, shape=LLAMA)
    script = torchtitan.launch(plan).files["launch/ro-node0.sh"].content
    assert script.endswith('"$here"/holmes_launch.py -m torchtitan.train --module holmes_plan --config plan "$@"\n')


REFUSED = [
    ({"shape": {}}, "mlp gelu: its models for text are gated; swiglu"),
    ({"shape": LLAMA | {"mlp": "relu2"}}, "mlp relu2: its models for text are gated; swiglu"),
    ({"shape": LLAMA | {"learned_positions": 64}}, "learned_positions 64: its models have rotary positions only; 0"),
    ({"shape": EXPERTS, "capacity_factor": 1.5}, "capacity_factor 1.5: experts take all their tokens; none"),
    ({"shape": EXPERTS, "tp": 2, "dp": 2, "ep": 2, "sequence_parallel": True},
     "etp 2 with ep 2: ranks of an ep group hold whole experts, others 1/tp; etp 1"),
    ({"shape": EXPERTS, "tp": 2, "etp": 1, "sequence_parallel": True},
     "etp 1 with ep 1: ranks of an ep group hold whole experts, others 1/tp; etp 2"),
    ({"shape": EXPERTS, "dp": 2, "ep": 2, "zero_stage": 0},
     "ep 2: it divides the 1 ranks of a shard group and tp; a divisor of 1"),
    ({"pp": 2, "shape": LLAMA | {"tied_embeddings": True}},
     "tied_embeddings with pp 2: it does not tie weights across stages; pp 1"),
    ({"precision": "fp16"},
     "precision fp16: mixed_precision_param supports bfloat16 and float32; bf16, fp8, mxfp8, nvfp4 or fp32"),
    ({"precision": "fp8", "fp8_param_gather": True, "shape": WIDE},
     "fp8_param_gather: it gathers weights in bf16, because each row has a scale; a stack without fp8_param_gather"),
    ({"precision": "fp8", "shape": WIDE | {"ffn_hidden": 200}},
     "precision fp8 with ffn_hidden 200 over 1 rank: its products take multiples of 16; bf16, or another degree"),
    ({"precision": "fp8", "shape": WIDE, "seq_len": 72},
     "precision fp8 with tokens of a microbatch over 1 rank: its products take multiples of 16; bf16, or another degree"),
    ({"precision": "fp8", "shape": WIDE, "pp": 2, "microbatches": 2, "schedule": "zb-h1"},
     "schedule zb-h1 with precision fp8: layers are compiled, and their backward is not split; 1f1b or interleaved"),
    ({"attention": "unfused"}, "attention unfused: it has fused attention only (flex, varlen); flash"),
    ({"gradient_precision": "bf16"}, "gradient_precision bf16: gradients are reduced as fp32 (mixed_precision_reduce); fp32"),
    ({"pp": 2, "dp": 2, "microbatches": (3, 5)},
     "num_microbatches 3, 5: all replicas have the same number; --strategy holmes, or --dp that divides the batch"),
    ({"tp": 3}, "tp 3: it must divide kv_heads 8; a divisor of it"),
    ({"seq_len": 262144}, "seq_len 262144: its RoPE ends at 131072; no more than that"),
    ({"tp": 4, "sequence_parallel": True, "seq_len": 66}, "seq_len 66: it is split in 4 by tp and cp; a multiple of 4"),
    ({"cp": 2, "seq_len": 128}, "seq_len 128 with cp 2: a rank takes whole mask blocks; a multiple of 256"),
    ({"vpp": 2, "schedule": "interleaved", "layers": (1, 1)}, "vpp 2 with pp 1: there are stages only in a pipeline; vpp 1"),
    ({"schedule": "gpipe", "microbatches": 2},
     "schedule gpipe with pp 1: each microbatch's backward follows its forward; 1f1b"),
    ({"pp": 2, "schedule": "1f1b-deepspeed"}, "schedule 1f1b-deepspeed: torch exchanges both messages at once; 1f1b"),
    ({"cp": 2, "zero_stage": 0, "seq_len": 256}, "zero_stage 0 with cp 2: FSDP shards over the ranks of cp; --zero-stage 1"),
    ({"dp": 2, "cp": 4, "zero_shard_size": 2, "seq_len": 1024},
     "zero_shard_size 2: FSDP shards over all 4 ranks of cp; a multiple of 4"),
    ({"pp": 2, "dp": 2, "zero_stage": 2, "microbatches": 2},
     "zero_stage 2 with pp 2: a pipeline reduces whole gradients once a step; --zero-stage 1"),
    ({"dp": 2, "zero_stage": 1, "microbatches": 2},
     "zero_stage 1 with pp 1: each microbatch gathers weights and reduces; --zero-stage 3, or one microbatch"),
    ({"pp": 2, "dp": 2, "vpp": 4, "schedule": "interleaved", "microbatches": 4},
     "vpp 4 with zero_stage 1: it keeps 3 stages of each rank gathered; at most 3"),
]  # fmt: skip


@pytest.mark.parametrize(("facts", "line"), REFUSED, ids=[line.split(":")[0] for _, line in REFUSED])
def test_what_it_cannot_express_is_refused(one_fabric, facts, line):
    assert list(exporters.unsupported("torchtitan", builders.plan(one_fabric, **{"shape": LLAMA} | facts))) == [line]


def model_of(plan):
    """What the generated function `model` returns, and the statements before it, as text."""
    return ast.unparse(next(part for part in ast.parse(written(plan)).body if getattr(part, "name", "") == "model"))


def test_experts_are_those_of_qwen3(one_fabric):
    plan = builders.plan(one_fabric, dp=2, ep=2, shape=EXPERTS)
    assert settings(plan)["parallelism.expert_parallel_degree"] == "2"
    assert settings(plan)["training.disable_cuda_graphs"] == "True"
    assert settings(plan)["config"] == "qwen3_30b_a3b()"
    assert (
        "layers=qwen3._build_qwen3_moe_layers(n_layers=2, dim=dim, n_heads=24, n_kv_heads=8, head_dim=4, "
        "moe_hidden_dim=384, num_experts=4, top_k=2, moe_comm_backend='standard', "
        "rope=CosSinRoPE.Config(dim=4, max_seq_len=131072, theta=1000000, scaling='none'), attn_backend='flex')"
    ) in model_of(plan)
    assert settings(builders.plan(one_fabric, shape=EXPERTS)).get("training.disable_cuda_graphs") is None


@pytest.mark.parametrize(
    ("facts", "base", "without"),
    [
        ({"qk_norm": True}, "qwen3_32b()", False),
        ({"qk_norm": False}, "llama3_8b()", False),
        ({}, "llama3_8b()", False),
        ({"head_dim": 8}, "qwen3_32b()", False),
        ({"head_dim": 8, "qk_norm": False}, "qwen3_32b()", True),
        ({"experts": 4, "experts_per_token": 2, "qk_norm": False}, "qwen3_30b_a3b()", True),
    ],
)
def test_norms_of_queries_and_keys_are_those_of_the_model(one_fabric, facts, base, without):
    launched = ("qk_norm",)
    shape = {key: value for key, value in facts.items() if key not in launched}
    plan = builders.plan(one_fabric, shape=LLAMA | shape)
    model = replace(plan.workload.model, launch=LaunchFacts(qk_norm=facts.get("qk_norm")))
    plan = replace(plan, workload=replace(plan.workload, model=model))
    assert settings(plan)["config"] == base
    assert ("layer.attention.qk_norm = None" in model_of(plan)) is without


@pytest.mark.parametrize(
    ("precision", "converter"),
    [
        ("nvfp4", "NVFP4LinearConverter.Config(fqns=['layers'], model_compile_enabled=True)"),
        ("fp8", "Float8LinearConverter.Config(filter_fqns=['lm_head'], model_compile_enabled=True)"),
        ("mxfp8", "MXFP8LinearConverter.Config(fqns=['layers'], model_compile_enabled=True)"),
    ],
)
def test_products_of_layers_are_in_8_bits(one_fabric, precision, converter):
    plan = builders.plan(of("nvidia", one_fabric), tp=2, precision=precision, shape=WIDE, seq_len=128)
    assert f"return {converter}.build().convert(shape)" in model_of(plan)
    said = settings(plan)
    assert said["training.mixed_precision_param"] == "'bfloat16'"
    assert said["config.compile"] == "CompileConfig(enable=True, components=['model'])"


@pytest.mark.parametrize("precision", ["mxfp8", "nvfp4"])
def test_mxfp8_and_nvfp4_run_on_devices_of_nvidia(one_fabric, precision):
    plan = builders.plan(of("amd", one_fabric), precision=precision, shape=WIDE, seq_len=128)
    assert list(exporters.unsupported("torchtitan", plan)) == [
        f"precision {precision} on devices of amd: it is for those of nvidia; fp8 or bf16"
    ]


@pytest.mark.parametrize(("shape", "line"), [
    (EXPERTS | {"hidden": 768, "ffn_hidden": 1024},
     "precision nvfp4 with experts: it has no converter of their grouped products; bf16, fp8 or mxfp8"),
    (WIDE | {"ffn_hidden": 960},
     "precision nvfp4 with ffn_hidden 960 over 1 rank: its products take multiples of 128; bf16, or another degree"),
])  # fmt: skip
def test_nvfp4_has_products_of_128s_and_none_of_experts(one_fabric, shape, line):
    plan = builders.plan(of("nvidia", one_fabric), precision="nvfp4", seq_len=128, shape=shape)
    assert list(exporters.unsupported("torchtitan", plan)) == [line]


def test_nvfp4_has_types_in_place_of_dtensors(one_fabric):
    plan = builders.plan(of("nvidia", one_fabric), precision="nvfp4", shape=WIDE, seq_len=128)
    assert settings(plan)["parallelism.spmd_backend"] == "'spmd_types'"


def test_tensor_parallelism_beside_products_is_asynchronous(one_fabric):
    plan = builders.plan(one_fabric, tp=2, sequence_parallel=True, tp_overlap=True, shape=LLAMA)
    compiled = "CompileConfig(enable=True, components=['model'], enable_async_tensor_parallel=True)"
    assert settings(plan)["config.compile"] == compiled
    assert "config.compile" not in settings(builders.plan(one_fabric, tp=2, tp_overlap=True, shape=LLAMA))


def test_recomputation_of_unfused_attention_alone_is_refused(one_fabric):
    plan = builders.plan(one_fabric, recompute="selective", attention="unfused", shape=LLAMA)
    assert (
        "recompute selective: its SelectiveAC keeps matrix products and recomputes the rest; none or full"
        in exporters.unsupported("torchtitan", plan)
    )
    fused = builders.plan(one_fabric, recompute="selective", shape=LLAMA)
    assert settings(fused)["config.activation_checkpoint"] == "None"


@pytest.mark.parametrize(
    ("vendors", "line"),
    [
        (("amd", "nvidia"), "vendors amd, nvidia: it has one device backend for all ranks; a plan on devices of one vendor"),
        (("huawei", "huawei"), "vendor huawei: it runs on CUDA and ROCm devices; a plan on devices of nvidia or amd"),
        (("amd", "amd"), None),
    ],
)
def test_devices_are_of_one_vendor_that_it_runs_on(two_fabrics, vendors, line):
    made = [
        replace(cluster, node=replace(cluster.node, device=device(f"chip-{index}", vendor=vendor)))
        for index, (cluster, vendor) in enumerate(zip(two_fabrics.clusters, vendors, strict=True))
    ]
    plan = builders.plan(replace(two_fabrics, clusters=tuple(made)), tp=2, pp=2, microbatches=2, shape=LLAMA)
    assert list(exporters.unsupported("torchtitan", plan)) == ([line] if line else [])


def test_recomputation_of_some_layers_is_refused(one_fabric):
    plan = builders.plan(one_fabric, recompute="full", recompute_layers=(1,), shape=LLAMA)
    assert list(exporters.unsupported("torchtitan", plan)) == [
        "recompute_layers: its FullAC is for all layers; none, to recompute all layers"
    ]


def test_the_config_function_is_found_from_any_folder(one_fabric):
    """`python -m` looks for modules in the current folder, which is the one with the tokenizer."""
    plan = builders.plan(one_fabric, dp=2, shape=LLAMA, zero_stage=3, seq_len=128)
    lines = torchtitan.launch(plan).files["launch/c-node0.sh"].content.splitlines()
    assert lines[-2] == 'export PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"'
    assert "-m torchtitan.train --module holmes_plan --config plan" in lines[-1]


@pytest.mark.parametrize(
    ("facts", "layers", "line"),
    [
        ({"cp_algo": "all_gather"}, (12, 12), None),
        ({"cp_algo": "ulysses"}, (12, 12), "cp_algo ulysses: its ranks gather keys and values; cp_algo ring or all_gather"),
        ({}, (24, 0), "stages[1].layers: none with cp 2: it asks the first attention of each stage for its kind "
         "(apply_cp_to_forward); a layer on each stage"),
    ],
)  # fmt: skip
def test_keys_are_gathered_where_a_stage_has_attention(facts, layers, line):
    """torchtitan 0.3.0, distributed/context_parallel/api.py, line 56: flex_cp_allgather, and an IndexError without layers."""
    config = {"cp": 2, "dp": 1, "num_microbatches": (16,)} | facts
    plan = features.plan_of(features.Feature("", config, layers=layers))
    assert list(exporters.unsupported("torchtitan", plan)) == ([line] if line else [])
    assert any(said.startswith("Keys and values of cp ranks") for said in torchtitan.launch(plan).assumed) == (not facts)
