"""Sums of input gradients where queries, keys and values, and gate and up, are products of their own."""

from __future__ import annotations

from typing import Any

import pytest

from sim.kernels.payloads import tensor_collectives
from sim.kernels.separate_products import further_sums
from sim.plan.plan import Plan
from tests import builders


def layers_of(mlp: str = "gelu", tp: int = 2, **facts: Any) -> Plan:
    """A stage of three layers on one node."""
    machines = builders.fleet(builders.cluster(devices=2))
    return builders.plan(machines, tp=tp, layers=(3,), shape={"mlp": mlp}, **facts)


def sums(plan: Plan, backward: bool) -> float:
    """All_reduces of a microbatch on the stage, which has both ends."""
    work = tensor_collectives(plan.workload, plan.config, 3, True, True, backward)
    return sum(count for operation, _, count in work if operation == "all_reduce")


@pytest.mark.parametrize(("mlp", "backward"), [("gelu", 3 + 1), ("swiglu", 3 + 2)])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_a_layer_sums_the_gradient_of_each_product(mlp: str, backward: int, recompute: str) -> None:
    """Queries, keys, values and up; gate, too, in a gated MLP. The embedding sums in a forward, the head in a backward; a
    forward that is repeated sums its two results as before."""
    plan = layers_of(mlp, separate_products=True, recompute=recompute)
    again = 2 if recompute == "full" else 0
    assert (sums(plan, False), sums(plan, True)) == (3 * 2 + 1, 3 * (backward + again) + 1)
    assert sums(layers_of(mlp, recompute=recompute), True) == 3 * (2 + again) + 1


def test_sequence_parallelism_and_experts_have_no_further_sums() -> None:
    plan = layers_of("swiglu", separate_products=True, sequence_parallel=True)
    assert further_sums(plan.workload, plan.config, 3) == 0
    experts = {"mlp": "swiglu", "experts": 4, "experts_per_token": 2}
    plan = builders.plan(builders.fleet(builders.cluster(devices=2)), tp=2, shape=experts, separate_products=True)
    assert further_sums(plan.workload, plan.config, 3) == 3 * 2
