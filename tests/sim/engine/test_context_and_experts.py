"""Simulated steps of plans with context and expert parallelism: exposed ring exchanges, all_to_alls, and the closed form."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sim.analytic import plan_costs
from sim.engine.engine import simulate
from sim.engine.symmetry import fold, unfolded
from sim.kernels import memory
from sim.kernels.compute import rank_kernels
from sim.kernels.formulas import attention_seconds
from sim.workload.kernels import Attention
from tests.builders import any_plan
from tests.sim.context_and_experts import EXPERTS, nodes


@pytest.mark.parametrize("bandwidth", [1e6, 1e8, 1e10, 1e13])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_ring_exchanges_are_exposed_where_attention_is_shorter(bandwidth: float, recompute: str) -> None:
    """Of cp steps of attention, cp - 1 overlap an exchange: exposed = max(0, exchange - (cp - 1) / cp x attention)."""
    facts = {"cp": 4, "layers": (3,), "microbatches": 2, "seq_len": 1024, "recompute": recompute, "zero_stage": 0}
    plan = nodes(bandwidth, 0.0, **facts)
    free = nodes(1e30, 0.0, **facts)
    (core,) = (kernel for kernel in rank_kernels(plan.workload, plan.config) if isinstance(kernel, Attention))
    device = plan.fleet.spec(plan.placement[0])
    attention = [attention_seconds(core, device, "bf16", 2, "flash", backward) for backward in (False, True)]
    once = 3 * 2 * (1024 / 4) * 96 * 2 / (4 * bandwidth)  # three steps of K and V of a quarter of the sequence
    exposed = max(0.0, once - 0.75 * attention[0]) * (2 if recompute == "full" else 1)
    exposed += max(0.0, 2 * once - 0.75 * attention[1])
    reduced = 2 * 0.75 * 4 * memory.stage_parameters(plan.workload, plan.config, 3, True, True) / (4 * bandwidth)
    assert simulate(plan).step_s - simulate(free).step_s == pytest.approx(2 * 3 * exposed + reduced, rel=1e-9, abs=1e-12)
    assert simulate(plan).step_s == pytest.approx(plan_costs.step_seconds(plan), rel=1e-9)


HYBRID = {"cp_algo": "hybrid", "domain": 4}
FOLDED = {"sequence_parallel": True, "etp": 1}


@pytest.mark.parametrize(
    "facts",
    [
        {"dp": 4, "ep": 4}, {"dp": 2, "cp": 2, "ep": 4, "tp": 2}, {"cp": 2, "tp": 2}, {"cp": 8},
        {"cp": 8, "cp_algo": "ulysses"}, {"cp": 8, "cp_algo": "all_gather"},
        {"cp": 8} | HYBRID, {"tp": 2, "cp": 4} | HYBRID,
        {"tp": 4, "ep": 4} | FOLDED, {"tp": 2, "dp": 2, "ep": 4} | FOLDED,
    ],
)  # fmt: skip
@pytest.mark.parametrize("zero_stage", [0, 1])
def test_the_step_of_one_stage_equals_the_closed_form(facts: dict[str, int], zero_stage: int) -> None:
    """One kind of group reduces gradients: experts that only one rank holds are not reduced."""
    plan = nodes(microbatches=3, layers=(3,), shape=EXPERTS, zero_stage=zero_stage, **facts)
    assert simulate(plan).step_s == pytest.approx(plan_costs.step_seconds(plan), rel=1e-9)


@pytest.mark.parametrize(("domain", "like"), [(8, "ulysses"), (1, "ring")])
def test_hybrid_context_parallelism_is_one_of_both_where_all_or_no_ranks_share_a_node(domain: int, like: str) -> None:
    facts = {"cp": 8, "layers": (3,), "microbatches": 2, "seq_len": 1024, "recompute": "full"}
    hybrid, one = nodes(cp_algo="hybrid", domain=domain, **facts), nodes(cp_algo=like, **facts)
    assert simulate(hybrid).step_s == simulate(one).step_s


def test_hybrid_context_parallelism_sends_keys_of_a_head_share_between_nodes_alone() -> None:
    """Eight ranks on two nodes of four: the keys and values of 6 of 24 heads travel around each ring of two, of half of the
    sequence, so that a node sends 4 rings x 512 tokens x 48 values x 2 bytes, twice as many in a backward. Four all_to_alls of
    an eighth of the tokens stay on links four times as fast, three quarters of each."""
    facts = {"cp": 8, "layers": (1,), "seq_len": 1024, "zero_stage": 0} | HYBRID
    slow, twice = nodes(1e4, 0.0, **facts), nodes(2e4, 0.0, **facts)
    reduced = 2 * 7 / 8 * 4 * memory.stage_parameters(slow.workload, slow.config, 1, True, True)
    sent = 3 * 4 * 512 * 48 * 2 + 4 * 3 / 4 * (128 * 4 * 96 * 2 / 2) / 4
    assert simulate(slow).step_s - simulate(twice).step_s == pytest.approx((sent + reduced) / 2e4, rel=1e-6)


def test_all_to_alls_across_nodes_take_their_bytes_over_the_nics() -> None:
    """Sixteen ranks on four nodes: a rank sends 12/16 of its payload off its node; four ranks share a NIC; four all_to_alls."""
    facts = {"dp": 16, "ep": 16, "layers": (1,), "shape": {"experts": 16, "experts_per_token": 2}, "zero_stage": 0}
    slow, twice = nodes(1e6, 0.0, **facts), nodes(2e6, 0.0, **facts)
    dense = memory.by_sharing(slow.workload, slow.config, 1, True, True)[0][1]
    reduced = 2 * 15 / 16 * 4 * dense / 1e6
    tokens = 4 * (4 * 12 / 16 * 64 * 2 * 96 * 2) / 1e6
    assert simulate(slow).step_s - simulate(twice).step_s == pytest.approx((tokens + reduced) / 2, rel=1e-9)


@pytest.mark.parametrize(
    "facts",
    [
        {"tp": 2, "cp": 2, "dp": 2, "pp": 2, "ep": 2},
        {"cp": 4, "dp": 2, "pp": 2, "ep": 4},
        {"tp": 4, "cp": 2, "pp": 2, "schedule": "gpipe"},
        {"dp": 16, "ep": 4, "recompute": "full"},
        {"dp": 4, "cp": 2, "tp": 2, "ep": 4, "zero_stage": 3},
        {"dp": 4, "cp": 2, "pp": 2, "ep": 2, "zero_stage": 2, "schedule": "zb-h1"},
        {"tp": 4, "dp": 4, "ep": 4} | FOLDED,
        {"tp": 4, "dp": 2, "pp": 2, "ep": 2} | FOLDED,
        {"tp": 2, "cp": 2, "dp": 4, "ep": 4, "zero_stage": 3, "recompute": "full"} | FOLDED,
        {"tp": 4, "dp": 4, "ep": 4, "etp": 2, "sequence_parallel": True},
        {"dp": 16, "ep": 4, "etp": 2},
        {"dp": 16, "ep": 4, "dispatcher": "allgather"},
        {"tp": 2, "cp": 4, "dp": 2, "ep": 2, "cp_algo": "ulysses", "recompute": "full"},
        {"tp": 2, "cp": 4, "dp": 2, "ep": 2, "cp_algo": "all_gather", "recompute": "full"},
        {"tp": 2, "cp": 4, "dp": 2, "ep": 2, "recompute": "full"} | HYBRID,
        {"cp": 8, "pp": 2, "ep": 2} | HYBRID,
    ],
)
def test_symmetry_reduction_of_sixteen_ranks_is_exact(facts: dict[str, object]) -> None:
    plan = nodes(microbatches=4, shape=EXPERTS, **facts)
    step = simulate(plan).step_s
    assert len(fold(plan).representatives) == plan.config.pp
    assert step == pytest.approx(simulate(plan, unfolded(plan)).step_s, rel=1e-9)
    assert plan_costs.step_seconds(plan) <= step * (1 + 1e-9)
    assert plan_costs.upper_bound_seconds(plan) <= step


@given(data=st.data())
def test_no_step_is_shorter_than_that_of_devices_that_are_always_busy(data: st.DataObject) -> None:
    """The upper bound assumes tensor-parallel groups inside nodes; groups across nodes may have faster links."""
    plan = data.draw(any_plan(ranks=16))
    assume(all(group.transport == "intra_node" for group in plan.groups if group.kind == "tp"))
    assert plan_costs.upper_bound_seconds(plan) <= simulate(plan).step_s
