"""The evaluator and the closed form of schedules whose passes run in pairs, against the engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sim.analytic import plan_costs
from sim.analytic.evaluator import Table, evaluate
from sim.analytic.pass_order import ordered_tasks, ordered_tasks_in_full
from sim.analytic.plan_costs import PlanCosts
from sim.analytic.recurrence import steps
from sim.engine.engine import simulate
from sim.engine.symmetry import fold
from sim.hardware.cluster import Trunk
from sim.plan.plan import Plan
from tests import builders
from tests.builders import cluster, device, fleet, nic, wire
from tests.sim.context_and_experts import nodes
from tests.sim.ideal_machines import FREE, idle_fleet

VEE: dict[str, Any] = {"vpp": 2, "schedule": "dualpipev"}
EXPERTS = {"experts": 8, "experts_per_token": 2, "tied_embeddings": False}


@st.composite
def along_a_v(draw: st.DrawFn) -> Plan:
    """Plans of equal replicas in which no flow waits for another: each pipeline rank has its own cluster, and messages and
    exchanges take time by latency and overhead alone."""
    tp, pp, dp = draw(st.sampled_from([1, 2])), draw(st.integers(2, 4)), draw(st.sampled_from([1, 2, 4]))
    microbatches = 2 * pp + draw(st.sampled_from([0, 1, 3, 10, 60]))
    slow = draw(st.sampled_from([0.0, 0.25]))
    machines = idle_fleet(draw, (tp, pp, dp), slow)
    layers = tuple(draw(st.lists(st.integers(1, 4), min_size=2 * pp, max_size=2 * pp)))
    ep = draw(st.sampled_from([degree for degree in (1, 2, 4) if degree <= dp]))
    shape = {"hidden": draw(st.sampled_from([96, 3072])), "tied_embeddings": False} | (EXPERTS if ep > 1 else {})
    return builders.plan(
        machines, tp, pp, dp, microbatches=microbatches, layers=layers, shape=shape, ep=ep,
        recompute=draw(st.sampled_from(["none", "full"])), zero_stage=draw(st.integers(0, 1)),
        sequence_parallel=tp > 1, overlap_grad_reduce=draw(st.booleans()), overlap_param_gather=draw(st.booleans()), **VEE,
    )  # fmt: skip


@given(data=st.data())
def test_without_contention_the_step_is_that_of_the_engine(data: st.DataObject) -> None:
    plan = data.draw(along_a_v())
    step = simulate(plan).step_s
    assert evaluate([plan]) == pytest.approx([step], rel=1e-9)
    assert plan_costs.step_seconds(plan) <= step * (1 + 1e-9)


@given(data=st.data())
def test_equal_replicas_are_never_slower_than_in_the_engine(data: st.DataObject) -> None:
    pp, dp = data.draw(st.integers(2, 4)), data.draw(st.sampled_from([1, 2, 4]))
    ep = data.draw(st.sampled_from([degree for degree in (1, 2, 4) if degree <= dp]))
    plan = nodes(
        bandwidth=data.draw(st.sampled_from([1e8, 1e9, 1e11])), pp=pp, dp=dp, ep=ep, shape=EXPERTS,
        microbatches=2 * pp + data.draw(st.integers(0, 7)), zero_stage=data.draw(st.integers(0, 1)),
        layers=tuple(data.draw(st.lists(st.integers(1, 3), min_size=2 * pp, max_size=2 * pp))),
        overlap_grad_reduce=data.draw(st.booleans()), overlap_param_gather=data.draw(st.booleans()), **VEE,
    )  # fmt: skip
    assume(len(fold(plan).representatives) == pp)
    step, evaluated = simulate(plan).step_s, evaluate([plan])[0]
    assert plan_costs.step_seconds(plan) * (1 - 1e-9) <= evaluated <= step * (1 + 1e-9)


@pytest.mark.parametrize("interference", [0.0, 0.3])
def test_pairs_wait_for_exchanges_that_their_compute_does_not_hide(interference: float) -> None:
    """Experts on four hosts whose NICs have latency only: from hidden exchanges to those that last longer than compute."""
    for latency in (1e-6, 1e-4, 2e-3, 0.05):
        card = nic(bandwidth=FREE, latency=latency, interference=interference)
        machines = fleet(cluster(nodes=8, nics=(card,), spec=device(host_bandwidth=FREE)))
        plan = builders.plan(machines, dp=4, ep=4, pp=2, microbatches=9, layers=(2, 1, 3, 2), shape=EXPERTS, **VEE)
        assert evaluate([plan]) == pytest.approx([simulate(plan).step_s], rel=1e-9)


@pytest.mark.parametrize("overlap", [False, True])
def test_a_table_gives_the_steps_of_the_plans_of_its_splits(overlap: bool) -> None:
    """Two device types, one for the first pipeline rank and one for the other two; eight splits of twelve layers."""
    inside, cards = wire(latency=1e-6, interference=0.1), (nic(latency=2e-5, interference=0.2),)
    slow = cluster("slow", 2, 2, cards, device("slow", 1e13), inside)
    fast = cluster("fast", 4, 2, cards, device("fast", 3e13), inside)
    machines = fleet(slow, fast, trunks=(Trunk(("slow", "fast"), "infiniband", 1e9, 1e-4),))
    layers = 1 + np.random.default_rng(5).multinomial(6, np.full(6, 1 / 6), 8)
    plans = [
        builders.plan(
            machines, 2, 3, 2, microbatches=8, layers=tuple(int(n) for n in row), zero_stage=1, ep=2, etp=1,
            overlap_grad_reduce=overlap, overlap_param_gather=overlap, shape=EXPERTS | {"hidden": 1536},
            sequence_parallel=True, **VEE,
        )
        for row in layers
    ]  # fmt: skip
    costs, both = PlanCosts(plans[0]), (0, 1)
    messages = np.array([[0.0, costs.message(0, 1, both)], [costs.message(1, 0, both), costs.message(1, 2, both)]])
    table = Table([costs.at(0, both, (0,)), costs.at(1, both, (1,))], messages)
    candidates = table.candidates(np.tile([0, 1, 1], (8, 1)), layers)
    assert steps(candidates) == pytest.approx(evaluate(plans), rel=1e-12)


@given(st.integers(2, 7), st.integers(0, 150))
def test_loops_are_those_of_the_full_list_of_microbatches(pp: int, more: int) -> None:
    short, whole = (of("dualpipev", pp, 2 * pp + more, 2) for of in (ordered_tasks, ordered_tasks_in_full))
    assert [(loop.later, tuple(loop.blocks)) for loop in short] == [(loop.later, tuple(loop.blocks)) for loop in whole]
    if more > 4 * pp:
        assert len(short) == 3
