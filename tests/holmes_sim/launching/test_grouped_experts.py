"""Experts of a rank are multiplied together, as the plan counts, or the launch says that they are not."""

from __future__ import annotations

import pytest

from holmes_sim import exporters
from sim.plan.plan import Plan
from tests import features

ONE_BY_ONE = "The experts of a rank run one after the other, which takes longer than the plan counts"


def plan(precision: str = "bf16", **model: object) -> Plan:
    return features.plan_of(features.Feature("", {"ep": 2}, precision=precision, model=features.EXPERTS | model))


def written(of: Plan) -> tuple[bool, bool, bool]:
    """(flag of Megatron-LM, override of Megatron-Bridge, which has no recipes in fp16, warning)."""
    launch = exporters.get("megatron").launch(of)
    flags = launch.files["megatron.args"].content.splitlines()
    overrides = launch.files["bridge-overrides.txt"].content.splitlines() if "bridge-overrides.txt" in launch.files else []
    told = any(line.startswith(ONE_BY_ONE) for line in launch.assumed)
    return "--moe-grouped-gemm" in flags, "model.moe_grouped_gemm=true" in overrides, told


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (plan(), (True, True, False)),
        (plan("fp16"), (False, False, True)),
        (plan(mlp="gelu"), (False, False, True)),
        (plan("fp16", experts=2), (False, False, False)),  # each rank has one expert
    ],
)
def test_experts_are_multiplied_together_where_megatron_can(of: Plan, expected: tuple[bool, bool, bool]):
    assert written(of) == expected


@pytest.mark.parametrize(
    ("precision", "refused"), [("bf16", []), ("fp16", ["recompute_modules moe_act: it needs --moe-grouped-gemm"])]
)
def test_recomputed_activations_of_experts_need_it(precision: str, refused: list[str]):
    config = {"ep": 2, "recompute": "selective", "recompute_modules": ("moe_act",)}
    of = features.plan_of(features.Feature("", config, precision=precision, model=features.EXPERTS))
    assert [fault.split(",")[0] for fault in exporters.unsupported("megatron", of)] == refused
