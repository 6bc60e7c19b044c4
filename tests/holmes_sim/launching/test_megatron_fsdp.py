"""ZeRO 2 and 3 for Megatron-LM: what is refused, what is written, and what is read back."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from holmes_sim import exporters, launch_readers, scoring
from holmes_sim.exporters import megatron
from holmes_sim.launch_reading.given import Given
from holmes_sim.launching import megatron_flags, megatron_fsdp
from sim.errors import PlanError
from sim.formats.edits import edited
from sim.hardware.stack import software_facts
from sim.kernels import memory
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.workload.workload import Workload
from tests import features

ALONE = {"pp": 1, "dp": 4, "num_microbatches": (4,) * 4, "zero_stage": 3}
LAYER = (4 * 2304**2 + 3 * 2304 * 6144 + 2 * 2304) // 2
"""Parameters of a layer of the model of `features` on a rank of tp 2."""
ENDS = (2 * 51200 * 2304 + 2304) // 2
"""Of embedding, final norm and head."""


def plan_of(config: dict, model: dict | None = None, precision: str = "bf16") -> Plan:
    return features.plan_of(features.Feature("", ALONE | config, model=model, precision=precision))


WRITTEN = [
    {"zero_stage": 2},
    {"zero_stage": 2, "overlap_param_gather": False},
    {},
    {"gradient_precision": "bf16"},
    {"tp": 1, "dp": 8, "num_microbatches": (2,) * 8, "zero_shard_size": 4},
    {"zero_stage": 2, "zero_shard_size": 2},
    {"cp": 2, "dp": 2, "num_microbatches": (8,) * 2},
    {"recompute": "full", "recompute_layers": (5,)},
    {"recompute": "selective", "recompute_modules": ("layernorm", "mlp")},
    {"offload": ("activations",)},
]
OTHERS = [
    ({"ep": 2}, features.EXPERTS, "bf16"),
    ({"ep": 4, "etp": 1}, features.EXPERTS, "bf16"),
    ({"ep": 2, "overlap_expert_communication": True}, features.EXPERTS, "bf16"),
    ({}, {"tied_embeddings": True}, "bf16"),
    ({"gradient_precision": "fp16"}, None, "fp16"),
    ({"gradient_precision": "fp32"}, None, "fp16"),
    ({"attention": "unfused"}, None, "fp32"),
]


@pytest.mark.parametrize(("config", "model", "precision"), [*((one, None, "bf16") for one in WRITTEN), *OTHERS])
def test_what_is_exported_is_read_back_as_the_same_configuration(tmp_path, config, model, precision):
    plan = plan_of(config, model, precision)
    assert list(exporters.unsupported("megatron", plan)) == []
    path = tmp_path / "megatron.args"
    path.write_text(megatron_flags.text(megatron.flags(plan)), encoding="utf-8")
    job = launch_readers.read(path, Given({}, None))
    where = edited(plan.topology, {"clusters.b": None, "clusters.a.nodes": 2, "links": []})
    assert scoring.plan_of(job, where).config == replace(
        plan.config, **software_facts(where.stack, where.fleet, plan.config.tp)
    )
    assert job.not_modelled == ()


RULES = {
    "mcore_fsdp_adapter.py:827": lambda config: config.dp_cp * config.tp != config.world_size,
    "megatron_fsdp.py:333": lambda config: not config.overlap_grad_reduce,
    "hybrid_optimizer.py:115": lambda config: config.offloads_optimizer,
}
"""Lines of Megatron-LM d98e8a64 that a launch of ZeRO 2 or 3 does not pass, or not as it is planned -> whether they meet a
layout. Its parser (megatron/training/arguments.py, 1118 to 1187) takes every flag that a plan has beside them."""
DEGREES = [
    degrees | {"num_microbatches": (2,) * degrees["dp"]}
    for tp, pp, cp, dp in itertools.product((1, 2), (1, 2), (1, 2), (1, 2, 4))
    for degrees in [{"tp": tp, "pp": pp, "cp": cp, "dp": dp, "sequence_parallel": tp > 1}]
]
VARIED = {
    "zero_stage": (2, 3),
    "zero_shard_size": (None, 2),
    "ep": (1, 2),
    "recompute": ("none", "full"),
    "overlap_grad_reduce": (True, False),
    "overlap_param_gather": (True, False),
    "offload": ((), ("optimizer",), ("activations",)),
    "gradient_precision": ("fp32", "bf16"),
    "tp_overlap": (False, True),
}


def layouts():
    for degrees, values in itertools.product(DEGREES, itertools.product(*VARIED.values())):
        try:
            yield ParallelConfig(**degrees, **dict(zip(VARIED, values, strict=True)))
        except PlanError:
            continue


def test_nothing_is_refused_that_megatron_runs_and_nothing_else_is_taken():
    """What is refused under ZeRO 2 and 3, and not under ZeRO 1."""
    plain = features.plan_of(features.FEATURES[0]).workload
    experts = features.plan_of(features.Feature("", {}, model=features.EXPERTS)).workload
    seen = set()
    for config in layouts():
        workload = experts if config.ep > 1 else plain
        more = set(reasons(config, workload)) - set(reasons(replace(config, zero_stage=1), workload))
        met = [line for line, rule in RULES.items() if config.dp_cp > 1 and rule(config)]
        assert len(more) == len(met), (config, more, met)
        seen |= {*met, len(met)}
    assert seen == {*RULES, 0, 1, 2, 3}


def reasons(config: ParallelConfig, workload: Workload) -> list[str]:
    return list(exporters.unsupported_layout("megatron", config, workload))


@pytest.mark.parametrize(
    ("config", "line"),
    [
        ({"pp": 2, "dp": 2, "num_microbatches": (8, 8)},
         "zero_stage 3 with pp 2: Megatron-FSDP has no pipeline in its mesh of ranks; --pp 1, or --zero-stage 1"),
        ({"zero_stage": 2, "overlap_grad_reduce": False, "overlap_param_gather": False},
         "overlap_grad_reduce false with zero_stage 2: Megatron-FSDP always overlaps it; overlap_grad_reduce true"),
        ({"offload": ("optimizer",)},
         "offload optimizer with zero_stage 3: its optimizer on the host takes no shards of Megatron-FSDP; --zero-stage 1, "
         "or --offload none"),
    ],
)  # fmt: skip
def test_refusals(config, line):
    assert list(exporters.unsupported("megatron", plan_of(config))) == [line]


def test_the_version_of_flagscale_has_no_flag_for_the_precision_of_gradients_and_no_ep():
    launch = exporters.get("flagscale").launch(plan_of({}))
    text = str(launch.files["conf/train/plan.yaml"].content)
    assert '  use_megatron_fsdp: true\n  data_parallel_sharding_strategy: "optim_grads_params"\n' in text
    assert "main_grads_dtype" not in text
    assert "    CUDA_DEVICE_MAX_CONNECTIONS: 8\n" in str(launch.files["conf/plan.yaml"].content)
    assert any(line.startswith("ZeRO 3 is Megatron-FSDP, that of its Megatron-LM; ") for line in launch.assumed)
    experts = features.plan_of(features.Feature("", features.ALONE | {"ep": 2, "zero_stage": 3}, model=features.EXPERTS))
    assert list(exporters.unsupported("flagscale", experts)) == [
        "ep 2 with zero_stage 3: its Megatron-FSDP has no mesh of experts; --zero-stage 1"
    ]


def test_holmes_refuses_it():
    assert list(exporters.unsupported("holmes", plan_of({}))) == [
        "zero_stage 3: its distributed optimizer shards the optimizer state only; zero_stage 0 or 1 (--zero-stage 1)"
    ]


def test_its_flags():
    """The unit is 2.5 layers: two are gathered ahead, as half of it is more than one layer and less than two."""
    assert megatron_fsdp.flags(plan_of({}).config, plan_of({}).workload) == {
        "use-megatron-fsdp": True,
        "data-parallel-sharding-strategy": "optim_grads_params",
        "ckpt-format": "fsdp_dtensor",
        "megatron-fsdp-main-grads-dtype": "fp32",
        "suggested-communication-unit-size": LAYER * 5 // 2,
    }
    assert 1 < megatron_fsdp.UNIT / 2 < memory.GATHERED_AHEAD == 2
    for config in ({"zero_stage": 1}, {"tp": 8, "dp": 1, "num_microbatches": (16,)}):
        assert megatron_fsdp.flags(plan_of(config).config, plan_of(config).workload) == {}


def test_its_environment_lets_kernels_overlap():
    """It ends where CUDA_DEVICE_MAX_CONNECTIONS is 1, which Megatron-LM demands of other launches with tp."""
    for config, value in (({}, 8), ({"zero_stage": 1}, 1)):
        files = megatron.launch(plan_of(config)).files
        assert f"export CUDA_DEVICE_MAX_CONNECTIONS='{value}'\n" in files["env/a-node0.env"].content


def test_what_it_keeps_beyond_the_plan():
    """In bytes: weights of both ends (2 each), and gradients (4 each) of 3.5 layers or of the head, whichever is more."""
    assert megatron_fsdp.kept_beyond(plan_of({})) == 2 * ENDS + 4 * 3.5 * LAYER
    assert megatron_fsdp.kept_beyond(plan_of({"zero_stage": 2})) == 4 * 3.5 * LAYER
    large = plan_of({"zero_stage": 2, "gradient_precision": "bf16"}, {"vocab": 204800})
    assert megatron_fsdp.kept_beyond(large) == 2 * (204800 * 2304 + 2304) / 2
    assert (
        "Megatron-FSDP keeps embedding and head whole, and gradients that wait for their reduction: up to 650.3 MiB a device "
        "that the plan does not count."
    ) in megatron.launch(plan_of({})).assumed


def test_on_rocm_it_is_assumed_to_be_there():
    feature = next(one for one in features.FEATURES if one.name == "devices of AMD alone")
    plan = features.plan_of(replace(feature, config=feature.config | ALONE))
    line = "ROCm's Megatron-LM must be one with Megatron-FSDP: 2b855baf (October 2024) has none, later ones were not read."
    assert line in megatron.launch(plan).assumed
    assert line not in megatron.launch(plan_of({})).assumed


def test_devices_must_hold_it(monkeypatch):
    plan = plan_of({})
    needed = memory.peak_memory(plan)[0] + megatron_fsdp.kept_beyond(plan)
    monkeypatch.setattr(memory, "limits", lambda _: (needed,))
    assert list(exporters.unsupported("megatron", plan)) == []
    monkeypatch.setattr(memory, "limits", lambda _: (needed - 1,))
    (line,) = exporters.unsupported("megatron", plan)
    assert line.startswith("zero_stage 3: Megatron-FSDP keeps more weights and gradients whole than the plan counts, ")
    assert line.endswith(" in all; smaller microbatches, more tp, or --zero-stage 1")


def test_megatron_bridge_has_it_with_gradients_as_wide_as_weights():
    files = megatron.launch(plan_of({"gradient_precision": "bf16"})).files
    lines = files["bridge-overrides.txt"].content.splitlines()
    assert {
        "mixed_precision=bf16_mixed", "dist.use_megatron_fsdp=true", "ddp.use_megatron_fsdp=true",
        "ddp.data_parallel_sharding_strategy=optim_grads_params", "ddp.outer_dp_sharding_strategy=no_shard",
        f"ddp.suggested_communication_unit_size={LAYER * 5 // 2}", "checkpoint.ckpt_format=fsdp_dtensor",
    } <= set(lines)  # fmt: skip
    launch = megatron.launch(plan_of({}))
    assert "bridge-overrides.txt" not in launch.files
    assert (
        "no mixed precision of Megatron-Bridge has precision bf16 with gradients in fp32: no overrides for it."
    ) in launch.assumed
