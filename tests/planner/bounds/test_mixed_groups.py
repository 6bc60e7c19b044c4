"""Groups of replicas that are placed alike, on two clusters of nodes of four devices with a NIC each."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from planner.bounds.mixed_deadline import mixed_bound
from planner.bounds.mixed_groups import groups
from planner.costs.context import PlanningContext
from planner.costs.mixed_stages import MixedStageCosts
from planner.placement.ranks import assemble
from planner.placement.simulation import simulate_plan, step
from planner.request import Request, Wishes
from planner.space.device_slots import Run, StageSlots, devices
from sim.hardware.cluster import Trunk
from tests import builders as make
from tests.planner.builders import request, shape
from tests.planner.targets import alike_replicas

MESSAGE = 64 * 96 * 2 / 1e5
"""Seconds of a message between two nodes."""
ONE = shape(dp=3, zero_stage=0)


def four_stages() -> tuple[Request, tuple[StageSlots, ...]]:
    """Four stages of three replicas on twelve slots. The first two replicas stay on cluster a for three stages, but the first
    leaves its node behind stage 1 and the second behind stage 0; the third is on cluster b from stage 2 on."""
    nics, spec, inside = (make.nic("ethernet", 1e5, count=4),), make.device("chip", 1e9, 1e30), make.wire(bandwidth=1e12)
    clusters = [make.cluster(name, nodes, 4, nics, spec, inside) for name, nodes in (("a", 2), ("b", 1))]
    fleet = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 1e9, 0.0),))
    question = request(fleet, make.model(4), 60, Wishes(schedule="1f1b", zero_stage=0))
    a, b = question.clusters()
    return question, ((Run(a, 0, 3),), (Run(a, 3, 3),), (Run(a, 6, 2), Run(b, 0, 1)), (Run(b, 1, 3),))


@pytest.mark.parametrize(
    ("alike", "found"),
    [
        (False, [(1, [0, 1, 2, 1]), (1, [1, 1, 1, 1]), (1, [1, 2, 1, 0])]),
        (True, [(2, [0, 1, 2, 1]), (1, [1, 2, 1, 0])]),  # the first replica of the two stands for both
    ],
)
def test_replicas_with_numbers_of_their_own_are_grouped_by_node(alike, found):
    """Messages between nodes that a replica waits for on each stage."""
    question, placed = four_stages()
    rows = groups(MixedStageCosts(PlanningContext(question)), ONE, placed, True, alike)
    messages = [(group[0].replicas, [round(row.sent / MESSAGE, 3) for row in group]) for group in rows]
    assert messages == found


def test_a_replica_with_fewer_messages_may_run_more_microbatches():
    """The bound holds for the best numbers, which give the second replica more; with equal numbers it is higher."""
    question, placed = four_stages()

    def bound(question: Request) -> float:
        context = PlanningContext(question)
        found = mixed_bound(context, [(ONE, placed)], 1e9, context.limit).seconds
        assert found is not None
        return found

    def seconds(*numbers: int) -> float:
        return step(simulate_plan(assemble(question, ONE, (1, 1, 1, 1), devices(placed, 1), "by hand", numbers)))

    best = min(seconds(i, j, 60 - i - j) for i, j in itertools.product((15, 16, 17), (25, 26, 27)))
    assert best == seconds(16, 26, 18) < 0.94 * seconds(20, 20, 20)
    assert 0.8 * best < bound(question) <= best
    alike = bound(replace(question, target=alike_replicas()))
    assert 0.9 * seconds(20, 20, 20) < alike <= seconds(20, 20, 20)
    assert alike > best


def test_messages_do_not_count_for_very_many_parts():
    """Of 160 replicas on nodes of four devices there are forty parts, all alike; of 1,200 three hundred."""
    cluster = make.cluster("c", 600, 4, (make.nic("ethernet", 1e5),))
    question = request(make.fleet(cluster), make.model(2), 1200, Wishes(schedule="1f1b", zero_stage=0))
    (c,), costs = question.clusters(), MixedStageCosts(PlanningContext(question))
    for replicas, counts in ((160, True), (1200, False)):
        placed = (Run(c, 0, replicas),), (Run(c, replicas, replicas),)
        found = groups(costs, replace(ONE, dp=replicas), placed, True, False)
        assert [group[0].replicas for group in found] == [replicas]
        assert (found[0][0].sent > 0) == counts


def test_only_replicas_with_equal_numbers_send_at_the_same_time():
    """Two replicas share the NIC of their node: in step, each message takes twice as long."""
    clusters = [make.cluster(name, 1, 2, (make.nic("ethernet", 1e5),)) for name in "ab"]
    fleet = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 1e9, 0.0),))
    question = request(fleet, make.model(2), 4, Wishes(schedule="1f1b", zero_stage=0))
    (a, b), costs = question.clusters(), MixedStageCosts(PlanningContext(question))
    placed = (Run(a, 0, 2),), (Run(b, 0, 2),)
    for alike, messages in ((True, 2), (False, 1)):
        ((first, _),) = groups(costs, replace(ONE, dp=2), placed, True, alike)
        assert (first.replicas, first.sent) == (2, pytest.approx(messages * MESSAGE))
        ((first, _),) = groups(costs, replace(ONE, dp=2, schedule="zb-h1"), placed, False, alike)
        assert first.lane == pytest.approx(2 * MESSAGE)
