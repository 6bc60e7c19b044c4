"""What a step's traffic costs the cores, and the scale of the lab that follows from it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holmes_sim.lab import capacity, smallest_scale
from holmes_sim.lab.capacity import Capacity, bytes_sent, cpu_seconds, scale_for
from holmes_sim.lab.load import Load
from sim.plan.plan import Plan
from tests import builders
from tests.builders import cluster
from tests.holmes_sim.test_lab_run import PERMITTED
from tests.more import more

MESSAGE = 1 * 64 * 96 * 2
"""Bytes of the activations of a microbatch: one sequence of 64 tokens, hidden size 96, bf16."""
IDLE = Capacity(inside=2e6, between=1e6, others=Load(0.0, 0.0))


def pipeline(nodes: int, devices: int) -> Plan:
    slow = builders.nic("ethernet", 1e6)
    return builders.plan(builders.fleet(cluster("a", nodes, devices, (slow,))), pp=2, microbatches=3)


def test_messages_are_sent_once_by_each_stage() -> None:
    """Three microbatches: stage 0 sends three activations, stage 1 three gradients; over the NIC, or inside a node."""
    assert list(bytes_sent(pipeline(2, 1))) == [(0.0, 3 * MESSAGE)] * 2
    assert list(bytes_sent(pipeline(1, 2))) == [(3 * MESSAGE, 0.0)] * 2


def test_a_ring_of_two_sends_its_buffer_once() -> None:
    """Gradients in fp32 are reduced to shards, and bf16 weights gathered: half of either buffer for each of two ranks."""
    plan = builders.plan(builders.fleet(cluster("a", 2, 1)), dp=2)
    assert plan.config.zero_stage == 1
    expected = plan.workload.model.parameters * (4 + 2) / 2
    assert list(bytes_sent(plan)) == [(0.0, pytest.approx(expected))] * 2


def test_tensor_parallel_traffic_stays_inside_a_node() -> None:
    """At least two sums a layer and direction, for two layers: each rank of two sends a buffer for a sum."""
    plan = builders.plan(builders.fleet(cluster("a", 1, 2)), tp=2)
    for inside, between in bytes_sent(plan):
        assert inside >= 2 * 4 * MESSAGE
        assert between == 0.0


def test_traffic_takes_a_tenth_of_the_free_time() -> None:
    """Six messages of 12,288 bytes at 1 MB for a CPU second: 0.0737 CPU seconds. A step of 1 ms on two cores offers a tenth of
    2 ms times the scale, so that it is 369 at least; with half of the cores used by others, or stolen, 737."""
    plan = pipeline(2, 1)
    assert smallest_scale(plan, 2) == 1.0
    assert cpu_seconds(plan, IDLE) == pytest.approx(6 * MESSAGE / 1e6)
    assert scale_for(plan, 2, IDLE, 1e-3) == 500.0
    assert scale_for(plan, 2, replace(IDLE, others=Load(0.3, 0.2)), 1e-3) == 1000.0
    assert scale_for(plan, 2, IDLE, 1.0) == 1.0
    assert cpu_seconds(pipeline(1, 2), IDLE) == pytest.approx(6 * MESSAGE / 2e6)


def test_busy_cores_are_not_taken_for_none() -> None:
    assert replace(IDLE, others=Load(1.0, 0.0)).free == capacity.LEAST_FREE
    told = (
        "a CPU second of this machine carries 2 MB inside a namespace and 1 MB between two; other programs use 30% of the cores"
    )
    assert str(replace(IDLE, others=Load(0.3, 0.2))) == f"{told}, 20% are stolen"


@more
@PERMITTED
def test_this_machine_is_measured() -> None:
    """Between a megabyte and a hundred gigabytes for a CPU second, on any machine."""
    found = capacity.measure()
    assert 1e6 < found.inside < 1e11
    assert 1e6 < found.between < 1e11
    assert 0.0 <= found.others.busy <= 1.0
