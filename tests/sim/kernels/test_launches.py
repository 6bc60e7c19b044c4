"""Launches of layers by the host: layers with experts, graphs, and exchanges of tokens that overlap another microbatch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.analytic import plan_costs
from sim.engine.engine import simulate
from sim.hardware.device_spec import DeviceSpec
from sim.kernels import beside, lowering, payloads
from sim.kernels.compute import launch_gaps, layer_seconds
from sim.kernels.launches import launch_seconds
from sim.plan.plan import Plan
from sim.plan.program import text
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
    split = launch_gaps(slow, plan.workload, replace(plan.config, schedule="zb-h1"))
    assert 0 < split[1] < launch_gaps(slow, plan.workload, plan.config)[1]


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
