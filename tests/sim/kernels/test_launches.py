"""Launches of layers by the host: layers with experts, graphs, and exchanges of tokens that overlap another microbatch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.analytic import plan_costs
from sim.engine.engine import simulate
from sim.formats import catalog
from sim.hardware.device_spec import DeviceSpec
from sim.hardware.stack import DEFAULT
from sim.kernels import beside, lowering, payloads
from sim.kernels.compute import launch_gaps, layer_seconds, rank_kernels
from sim.kernels.launches import launch_seconds
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Plan
from sim.plan.program import text
from sim.workload.kernels import HEAD_NORM, Pass
from sim.workload.workload import Workload
from tests import builders
from tests.sim.context_and_experts import nodes

EXPERTS = {"experts": 8, "experts_per_token": 2}
QUIET = {"overlap_grad_reduce": False, "overlap_param_gather": False, "zero_stage": 0}


def layout(on: bool, **facts: object) -> Plan:
    """A plan of eight ranks, four to an ep group, with or without the overlap of another microbatch."""
    return nodes(dp=8, ep=4, shape=EXPERTS, overlap_expert_communication=on, **facts)


def slow_host(plan: Plan, launch: float) -> DeviceSpec:
    """The device of a plan whose host takes `launch` seconds for the forward of a dense layer."""
    return replace(plan.fleet.spec(plan.placement[0]), launch=launch)


def hosted(plan: Plan, launch: float) -> Plan:
    """The plan on devices whose host takes `launch` seconds for the forward of a dense layer."""
    (own,) = plan.fleet.clusters
    changed = replace(own, node=replace(own.node, device=slow_host(plan, launch)))
    return replace(plan, topology=replace(plan.topology, fleet=replace(plan.fleet, clusters=(changed,))))


def test_layers_with_experts_have_more_launches_and_overlapped_ones_twice_as_many() -> None:
    """2 and 0.1 for each expert of the rank, of which there are two; backwards 1.3 times as many."""
    without, overlapped = layout(False), layout(True)
    device = slow_host(without, 1e-3)
    assert launch_seconds(device, without.workload, without.config, ()) == pytest.approx((2.2e-3, 2.86e-3))
    assert launch_seconds(device, overlapped.workload, overlapped.config, ()) == pytest.approx((4.4e-3, 5.72e-3))
    graph = replace(overlapped.config, cuda_graphs=("full_iteration",))
    assert launch_seconds(device, overlapped.workload, graph, ()) == (0.0, 0.0)
    dense = replace(without.workload, model=replace(without.workload.model, experts=0, experts_per_token=0))
    one, back = launch_seconds(device, dense, overlapped.config, ())
    assert (one, back) == pytest.approx((1e-3, 1.3e-3)), "a dense layer has no exchange to overlap"


def test_the_exchange_of_an_overlapped_layer_is_beside_launches() -> None:
    """0.4 of the two exchanges of a layer travels while kernels wait for launches; with a graph of the iteration it is waited
    for, as an exchange of a gather is."""
    overlapped = layout(True, **QUIET)
    end = "dp all_reduce edp all_reduce optimizer"
    assert text(lowering.program(overlapped, 0, 1)) == f"F0 beside tokens F0 B0 beside tokens B0 {end}"
    (found,) = beside.exchanges(overlapped.workload, overlapped.config, 3, False)
    ((_, _, nbytes, times),) = payloads.expert_collectives(overlapped.workload, layout(False).config, 3, False)
    assert (found.nbytes, found.times) == (nbytes, pytest.approx(0.4 * times))
    assert payloads.expert_collectives(overlapped.workload, overlapped.config, 3, False) == ()
    for facts in ({"cuda_graphs": ("full_iteration",)}, {"dispatcher": "allgather"}):
        waited = layout(True, **QUIET, **facts)
        assert not beside.exchanges(waited.workload, waited.config, 3, False)
        assert payloads.expert_collectives(waited.workload, waited.config, 3, False)


def test_gaps_are_what_launches_take_longer_than_kernels() -> None:
    plan = layout(True)
    quick, slow = slow_host(plan, 0.0), slow_host(plan, 10.0)
    kernels, launches = (layer_seconds(device, plan.workload, plan.config) for device in (quick, slow))
    assert launch_gaps(quick, plan.workload, plan.config) == (0.0, 0.0)
    assert launch_gaps(slow, plan.workload, plan.config) == pytest.approx(
        [a - b for a, b in zip(launches, kernels, strict=True)]
    )
    assert launch_gaps(replace(slow, blocking=True), plan.workload, plan.config) == (0.0, 0.0)
    split = replace(plan.config, schedule="zb-h1")
    assert launch_gaps(slow, plan.workload, split) == launch_gaps(slow, plan.workload, plan.config)


def test_no_schedule_costs_less_than_one_that_splits_the_backward() -> None:
    """Bounds of a shape have the costs of one (`planner.space.shape.split_backward`): exchanges and, under ZeRO 3, gathers of
    weights find as long gaps of launches under both."""
    for facts in ({}, {"zero_stage": 3}):
        whole, split = (hosted(layout(True, schedule=name, **facts), 5.3e-6) for name in ("1f1b", "zb-h1"))
        costs = [plan_costs.PlanCosts(plan).stage(0, (0,)) for plan in (whole, split)]
        assert costs[0][:2] == pytest.approx(costs[1][:2])
        assert costs[0].weight == 0.0 < costs[1].weight < costs[1].backward


def test_a_host_bound_step_does_not_depend_on_an_exchange_in_its_gaps() -> None:
    """Where launches take longer than kernels and exchange together, the step is as without an exchange; where they take no
    time, it is longer by the exposed part. Closed form and engine say the same."""
    still = {"exchange": 0.0}
    for launch, hidden in ((10.0, True), (0.0, False)):
        plans = [hosted(layout(True, **facts), launch) for facts in ({}, still)]
        engine, closed = ([of(plan) for plan in plans] for of in (lambda one: simulate(one).step_s, plan_costs.step_seconds))
        assert (engine[0] == pytest.approx(engine[1])) is hidden
        assert engine[0] - engine[1] == pytest.approx(closed[0] - closed[1])


@pytest.mark.parametrize("facts", [{}, {"recompute": "full"}, {"tp": 2, "sequence_parallel": True}, {"imbalance": 1.5}])
def test_closed_form_and_engine_agree_beside_launches(facts: dict[str, object]) -> None:
    for launch in (0.0, 1e-3, 1.0):
        plan = hosted(layout(True, **QUIET, **facts), launch)
        assert simulate(plan).step_s == pytest.approx(plan_costs.step_seconds(plan), rel=1e-9)


DENSE = Workload(builders.model(8), 64, 64)


def hosts(*, norms: int = 0, **facts: object) -> tuple[float, float]:
    """(forward, backward) microseconds of the host for a dense layer of Transformer Engine's modules, of which a launch takes 1
    us, with `norms` of queries and keys."""
    device = builders.device(launch=30e-6, engine_modules=True)
    kernels = tuple(Pass(HEAD_NORM, 1.0) for _ in range(norms))
    forward, backward = launch_seconds(device, DENSE, ParallelConfig(**facts), kernels)
    return 1e6 * forward, 1e6 * backward


def test_modules_of_transformer_engine_take_the_host_longer() -> None:
    """Five modules of 57.3 us where a launch takes 33.2: 1.73 launches each beside 30, and 1.3 times as many in a backward."""
    assert hosts() == pytest.approx((30 + 5 * 1.73, 1.3 * (30 + 5 * 1.73)))
    assert hosts(norms=2) == pytest.approx((32 + 7 * 1.73, 1.3 * (32 + 7 * 1.73)))


def test_sequence_parallelism_adds_two_and_four_collectives_of_three_launches() -> None:
    """arXiv 2205.05198: four collectives in a forward where there were two, and six in a backward."""
    alone, parallel = hosts(tp=2), hosts(tp=2, sequence_parallel=True)
    assert (parallel[0] - alone[0], parallel[1] - alone[1]) == pytest.approx((6.0, 12.0))
    assert hosts() == alone == hosts(sequence_parallel=True), "one rank exchanges nothing"


def test_unfused_attention_adds_six_and_nine_launches() -> None:
    fused, unfused = hosts(), hosts(attention="unfused")
    assert (unfused[0] - fused[0], unfused[1] - fused[1]) == pytest.approx((6.0, 9.0))


def test_graphs_of_parts_of_a_dense_layer_leave_the_other_launches() -> None:
    whole = hosts(tp=2, sequence_parallel=True)
    for scopes, left in ((("attn",), 0.4), (("mlp",), 0.6), (("attn", "mlp"), 0.0), (("moe_router",), 1.0)):
        found = hosts(tp=2, sequence_parallel=True, cuda_graphs=scopes)
        assert found == pytest.approx((left * whole[0], left * whole[1]), abs=1e-9)


def test_layers_with_experts_have_launches_of_their_own() -> None:
    """Their number was set by software with these modules, so that neither modules nor graphs of parts change it."""
    plan = layout(False)
    device = slow_host(plan, 1e-3)
    plain = launch_seconds(device, plan.workload, plan.config, ())
    graphed = replace(plan.config, cuda_graphs=("attn", "moe_router", "moe_preprocess"))
    assert launch_seconds(replace(device, engine_modules=True), plan.workload, graphed, ()) == plain


def test_a_published_layer_takes_its_host_as_long_as_measured() -> None:
    """Qwen3-8B with tp 8 and sequence parallelism under Megatron-Bridge on H100: 4.2 ms of a layer, its kernels 2.5 (github
    BastiaanGroot/ML-Infrastructure-Engineer 52ad575d, training/profiles); no number was set by it."""
    device = replace(DEFAULT, engine_modules=True).device(catalog.device("h100-sxm5-80gb"))
    config = ParallelConfig(tp=8, sequence_parallel=True)
    workload = Workload(catalog.model("qwen3-8b"), 8, 4096)
    assert sum(launch_seconds(device, workload, config, rank_kernels(workload, config))) == pytest.approx(4.2e-3, rel=0.07)
