"""Simulated steps of models whose layers differ: symmetry, the closed form, and memory by stage."""

from __future__ import annotations

import pytest

from sim.analytic import plan_costs
from sim.analytic.evaluator import evaluate
from sim.engine.engine import simulate
from sim.engine.symmetry import unfolded
from sim.errors import NotModelled
from sim.formats import planfile
from sim.kernels import memory
from sim.plan.plan import Plan
from tests.sim.context_and_experts import described, nodes

MIXED = {"experts": 4, "experts_per_token": 2, "dense_layers": 3, "dense_ffn_hidden": 768, "shared_ffn_hidden": 96}
LATENT = {
    "attention": "mla", "q_lora_rank": 48, "kv_lora_rank": 24, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 4,
}  # fmt: skip
SHAPES = {
    "dense layers first": MIXED,
    "every other layer": {**MIXED, "dense_layers": 0, "moe_layer_step": 2},
    "latent attention and further tokens": MIXED | LATENT | {"mtp_layers": 1},
    "windows": {"sliding_window": 16, "full_attention_every": 3},
}
FACTS = [
    {"pp": 2, "dp": 2, "tp": 2, "sequence_parallel": True, "layers": (4, 2)},
    {"pp": 2, "dp": 4, "layers": (2, 4), "recompute": "full", "schedule": "zb-h1"},
    {"pp": 2, "dp": 4, "vpp": 2, "schedule": "interleaved", "layers": (2, 2, 2, 1)},
    {"dp": 4, "cp": 2, "layers": (5,), "zero_stage": 3},
]


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("facts", FACTS, ids=range(len(FACTS)))
def test_symmetry_reduction_and_closed_form(shape: dict[str, object], facts: dict[str, object]) -> None:
    ep = 2 if "experts" in shape and facts.get("zero_stage") != 3 else 1
    plan = nodes(microbatches=4, shape=shape, ep=ep, **facts)
    step = simulate(plan).step_s
    assert step == pytest.approx(simulate(plan, unfolded(plan)).step_s, rel=1e-9)
    assert plan_costs.step_seconds(plan) <= step * (1 + 1e-9)
    assert plan_costs.upper_bound_seconds(plan) <= step


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_one_stage_takes_what_the_closed_form_says(shape: dict[str, object]) -> None:
    plan = nodes(dp=4, microbatches=3, layers=(5,), shape=shape, zero_stage=0)
    assert simulate(plan).step_s == pytest.approx(plan_costs.step_seconds(plan), rel=1e-9)
    assert evaluate([plan]) == pytest.approx([simulate(plan).step_s], rel=1e-9)


def test_each_stage_holds_the_parameters_of_its_own_layers() -> None:
    """Dense layers 0 to 2: the first stage has two of them, the second the third."""
    plan = nodes(pp=2, dp=2, layers=(2, 4), shape=MIXED, zero_stage=0)
    model = plan.workload.model
    (_, dense), (_, routed) = model.kinds(0, 6)
    held = [
        memory.stage_parameters(plan.workload_of((stage,)), plan.config, plan.stages[stage].layers, *plan.ends((stage,)))
        for stage in (0, 1)
    ]
    assert held == [
        2 * dense.layer_parameters + model.embedding_parameters,
        dense.layer_parameters + 3 * routed.layer_parameters + model.head_parameters,
    ]
    assert memory.torch_bytes(plan)[0] < memory.torch_bytes(nodes(pp=2, dp=2, layers=(4, 2), shape=MIXED, zero_stage=0))[0]


def test_stages_are_priced_alike_where_their_layers_are_alike() -> None:
    """Four layers with experts are slower than two dense ones beside them; the same plan of equal layers has no such stage."""
    plan = nodes(pp=2, dp=2, layers=(3, 3), shape=MIXED, microbatches=8)
    costs = plan_costs.PlanCosts(plan)
    first, second = (costs.at(stage, (0,), (stage,)).work(3, False, False)[0] for stage in (0, 1))
    equal = nodes(pp=2, dp=2, layers=(3, 3), shape=MIXED | {"dense_layers": 0, "dense_ffn_hidden": 0}, microbatches=8)
    other = plan_costs.PlanCosts(equal)
    assert second == pytest.approx(other.at(1, (0,), (1,)).work(3, False, False)[0], rel=1e-12)
    assert first != pytest.approx(second, rel=1e-3)


def test_a_plan_file_keeps_the_keys_of_the_model() -> None:
    plan = nodes(dp=2, layers=(5,), shape=MIXED | LATENT | {"mtp_layers": 1})
    plan = described(plan)
    read = planfile.from_text("plan.json", planfile.to_json(plan))
    assert read.workload == plan.workload


def test_some_recomputed_layers_need_equal_layers() -> None:
    def wanted() -> Plan:
        return nodes(dp=2, layers=(5,), shape=MIXED, recompute="full", recompute_layers=(2,))

    with pytest.raises(NotModelled, match=r"^config.recompute_layers: some layers of a stage, where the layers of the model"):
        wanted()
