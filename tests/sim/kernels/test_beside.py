"""Exchanges of tokens beside shared experts: what travels, what hides it, and the step in closed form and engine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.analytic import plan_costs
from sim.engine.engine import simulate
from sim.errors import NotModelled, PlanError
from sim.formats.config_facts import ConfigFacts, config_facts, config_values
from sim.kernels import beside, lowering, payloads
from sim.kernels.compute import layer_seconds, rank_kernels
from sim.kernels.formulas import kernel_seconds
from sim.plan.plan import Plan
from sim.plan.program import text
from tests.sim.context_and_experts import nodes

SHARED = {"experts": 8, "experts_per_token": 2, "shared_ffn_hidden": 960}
QUIET = {"overlap_grad_reduce": False, "overlap_param_gather": False, "zero_stage": 0}


def pair(shape: dict[str, int] = SHARED, **facts: object) -> tuple[Plan, Plan]:
    """A plan of eight ranks, four to an ep group, without and with the overlap of shared experts."""
    both = [nodes(dp=8, ep=4, shape=shape, overlap_shared_experts=on, **facts) for on in (False, True)]
    return both[0], both[1]


def test_a_program_has_dispatch_and_combine_beside_shared_experts() -> None:
    without, beside_them = pair(**QUIET)
    end = "dp all_reduce edp all_reduce optimizer"
    assert text(lowering.program(without, 0, 1)) == f"F0 ep all_to_all B0 ep all_to_all {end}"
    forward = "beside dispatch F0 beside combine F0"
    backward = "beside combine B0 beside dispatch B0"
    assert text(lowering.program(beside_them, 0, 1)) == f"F0 {forward} B0 {backward} {end}"
    _, full = pair(recompute="full", **QUIET)
    again = "beside dispatch R0 beside combine R0"
    assert text(lowering.program(full, 0, 1)) == f"F0 {forward} B0 {again} {backward} {end}"


def test_all_exchanges_travel_as_without_the_overlap() -> None:
    for recompute in ("none", "full"):
        without, beside_them = pair(recompute=recompute)
        for backward in (False, True):
            ((_, _, nbytes, times),) = payloads.expert_collectives(without.workload, without.config, 3, backward)
            assert payloads.expert_collectives(beside_them.workload, beside_them.config, 3, backward) == ()
            found = beside.exchanges(beside_them.workload, beside_them.config, 3, backward)
            assert {one.nbytes for one in found} == {nbytes}
            assert sum(one.times for one in found) == times


def test_products_of_shared_experts_hide_the_exchanges() -> None:
    """Dispatch is beside the first product and the activation, combine beside the second product, under schedules that split
    the backward, too."""
    _, plan = pair()
    device = plan.fleet.spec(plan.placement[0])
    kernels = [one for one in rank_kernels(plan.workload, plan.config) if one.name in ("up", "activation", "down")]
    up, activation, down = (kernel_seconds(one, device, plan.workload, plan.config) for one in kernels[:3])
    assert kernels[0].n == 960, "those of shared experts, of which all ranks have the whole width"
    found = beside.shared_seconds(device, plan.workload, plan.config)
    assert found == ((up[0] + activation[0], up[1] + activation[1]), down)
    assert beside.shared_seconds(device, plan.workload, replace(plan.config, schedule="zb-h1")) == found
    windows = beside.windows(device, plan.workload, plan.config, 2)
    assert (windows["dispatch F"], windows["combine B"]) == (2 * found[0][0], 2 * found[1][1])
    assert (windows["dispatch R"], windows["combine R"]) == (0.0, 0.0)
    assert sum(windows.values()) < 2 * sum(layer_seconds(device, plan.workload, plan.config))


@pytest.mark.parametrize("facts", [
    {}, {"recompute": "full"}, {"recompute": "selective", "recompute_modules": ("moe",)}, {"imbalance": 1.5},
    {"dispatcher": "deepep", "domain": 4}, {"tp": 2, "sequence_parallel": True},
])  # fmt: skip
def test_a_step_is_shorter_by_what_is_hidden(facts: dict[str, object]) -> None:
    """Of each exchange the shorter of its own seconds and those of the compute beside it is hidden; closed form and engine say
    the same."""
    without, beside_them = pair(**facts)
    saved = plan_costs.step_seconds(without) - plan_costs.step_seconds(beside_them)
    assert saved > 0
    assert simulate(without).step_s - simulate(beside_them).step_s == pytest.approx(saved)


def test_exchanges_shorter_than_the_shared_experts_cost_nothing() -> None:
    wide, fast = SHARED | {"shared_ffn_hidden": 96000}, {"bandwidth": 1e12, "latency": 0.0}
    without, hidden = pair(wide, **fast)
    still = nodes(dp=8, ep=4, shape=wide, exchange=0.0, **fast)
    assert simulate(hidden).step_s == pytest.approx(simulate(still).step_s)
    assert simulate(hidden).step_s < simulate(without).step_s


def test_the_key_is_written_where_it_is_set_and_refused_where_nothing_overlaps() -> None:
    _, plan = pair()
    assert config_facts(plan.config)["overlap_shared_experts"] is True
    assert "overlap_shared_experts" not in config_facts(replace(plan.config, overlap_shared_experts=False))
    assert config_values(ConfigFacts(**config_facts(plan.config)))["overlap_shared_experts"] is True
    with pytest.raises(PlanError, match=r"config.overlap_shared_experts: model tiny has no shared experts; leave it out"):
        nodes(dp=8, ep=4, shape={"experts": 8, "experts_per_token": 2}, overlap_shared_experts=True)
    with pytest.raises(PlanError, match="overlap_shared_experts with overlap_expert_communication"):
        replace(plan.config, overlap_expert_communication=True)
    with pytest.raises(NotModelled, match="overlap_shared_experts with dispatcher allgather is not modelled"):
        replace(plan.config, dispatcher="allgather")
