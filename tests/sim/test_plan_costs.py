"""The closed form of a step against the engine where the data-parallel network is the bottleneck (ZeRO 2 and 3)."""

from __future__ import annotations

import pytest

from sim.analytic.plan_costs import step_seconds
from sim.engine.engine import simulate
from sim.hardware.cluster import Trunk

DRAIN = (
    "PlanCosts.step lets the way back begin when the last reduction ends (slot = traffic); it begins when the last backward "
    "ends: max(m busy - owed - send_backward, m lane), as planner.bounds.deadline_test has it"
)


@pytest.fixture
def joined(make_cluster, make_fleet, make_nic, make_device, make_plan):
    """A schedule and a ZeRO stage -> two stages of two replicas, over slow NICs and a trunk of 50 ms latency."""

    def plan(schedule: str, zero_stage: int):
        spec, nics = make_device(speed=1e12, memory_bandwidth=1e11), (make_nic("ethernet", 1e7),)
        clusters = [make_cluster(name, 2, 1, nics, spec) for name in "ab"]
        machines = make_fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 1e9, 0.05),))
        return make_plan(machines, pp=2, dp=2, microbatches=3, layers=(1, 5), schedule=schedule, zero_stage=zero_stage)

    return plan


@pytest.mark.parametrize(
    ("schedule", "zero_stage"),
    [
        ("1f1b", 1),
        pytest.param("1f1b", 2, marks=pytest.mark.xfail(strict=True, reason=DRAIN)),
        ("1f1b", 3),
        ("zb-h1", 2),
        pytest.param("zb-h1", 3, marks=pytest.mark.xfail(strict=True, reason=DRAIN)),
        pytest.param("zb-h2", 3, marks=pytest.mark.xfail(strict=True, reason=DRAIN)),
    ],
)
def test_the_engine_is_not_faster_than_the_closed_form_where_gradients_queue_for_the_network(joined, schedule, zero_stage):
    plan = joined(schedule, zero_stage)
    assert step_seconds(plan) <= simulate(plan).step_s * (1 + 1e-9)
