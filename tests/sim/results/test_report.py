"""Timeline -> the numbers that a plan promises."""

from __future__ import annotations

import pytest

from sim.analytic import plan_costs
from sim.engine.engine import simulate
from sim.hardware.cluster import Trunk
from sim.results import report
from sim.results.sums import seconds_by_rank
from tests import builders
from tests.builders import cluster, device, fleet, nic


def test_the_promise_of_one_ideal_device() -> None:
    plan = builders.plan(fleet(cluster()), microbatches=4)
    timeline = simulate(plan)
    found = report.predict(plan, timeline)
    assert found.step_s == timeline.step_s
    assert found.samples_per_s == 4 / timeline.step_s
    assert found.tokens_per_s == 4 * 64 / timeline.step_s
    assert found.tflops_per_device == pytest.approx(plan.workload.flops / timeline.step_s / 1e12)
    assert found.mfu == pytest.approx(plan.workload.flops / timeline.step_s / 1e14)
    assert (found.bubble_fraction, found.exposed_communication_s) == (0.0, 0.0)


def test_the_bubble_of_equal_stages_is_p_minus_1_slots() -> None:
    """On free wires, with embedding and head made negligible by a vocabulary of one."""
    machines = fleet(cluster(nodes=4, nics=(nic(bandwidth=1e18),)))
    plan = builders.plan(machines, pp=4, microbatches=12, shape={"vocab": 1, "hidden": 9600})
    found = report.predict(plan, simulate(plan))
    slot = plan_costs.PlanCosts(plan).stage(1, (0,)).both
    assert found.bubble_fraction * found.step_s == pytest.approx(3 * slot, rel=0.01)


def test_the_upper_bound_of_a_fleet_is_the_sum_of_its_clusters() -> None:
    nics = (nic("ethernet", 1e10),)
    slow = cluster("slow", nodes=2, nics=nics, spec=device("slow", speed=1e13))
    fast = cluster("fast", nodes=1, nics=nics, spec=device("fast", speed=3e13))

    def rate(*clusters: object) -> float:
        return 6 / plan_costs.upper_bound_seconds(builders.plan(fleet(*clusters), microbatches=6))

    assert rate(slow, fast) == pytest.approx(rate(slow) + rate(fast), rel=1e-12)


def test_the_slowest_class_of_a_pipeline_rank_is_reported() -> None:
    nics = (nic("ethernet", 1e12),)
    a, b = (cluster(name, nics=nics, spec=device(name, speed=s)) for name, s in (("a", 1e13), ("b", 2e13)))
    plan = builders.plan(fleet(a, b, trunks=(Trunk(("a", "b"), "ethernet", 1e12, 0.0),)), dp=2)
    timeline = simulate(plan)
    (row,) = report.pipeline_ranks(plan, timeline)
    assert row.compute == max(report.split(sums)[0] for sums in seconds_by_rank(timeline).values())
    assert row.compute + row.exposed + row.bubble == pytest.approx(timeline.step_s, rel=1e-12)
