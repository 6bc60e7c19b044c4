"""Seconds of messages between neighbouring stages, computed by hand on two clusters of two nodes.

A message of one microbatch has 64 tokens of 96 values of 2 bytes: 12,288 bytes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from planner.costs.context import PlanningContext
from planner.request import Request
from planner.space.shapes import slots
from sim.errors import NoRoute
from sim.hardware.cluster import Trunk
from tests import builders as make
from tests.planner.builders import random_request, request, shape

BYTES = 64 * 96 * 2


def two_clusters(trunk: float = 1e7) -> Request:
    """Nodes of two devices, 1e8 bytes a second inside, 1e7 over Ethernet, `trunk` between the clusters with 1 ms of latency."""
    nics, wire = (make.nic("ethernet", 1e7),), make.wire(bandwidth=1e8)
    a, b = (make.cluster(name, 2, 2, nics, intra_node=wire) for name in "ab")
    return request(make.fleet(a, b, trunks=(Trunk(("a", "b"), "ethernet", trunk, 1e-3),)), make.model(4))


def test_a_message_inside_a_node_between_nodes_and_between_clusters():
    question = two_clusters()
    messages, (a, b), one = PlanningContext(question).messages, question.clusters(), shape()
    assert messages.hop(a, 0, a, 1, one, "ethernet") == pytest.approx(BYTES / 1e8)
    assert messages.hop(a, 1, a, 2, one, "ethernet") == pytest.approx(BYTES / 1e7)
    assert messages.hop(a, 3, b, 0, one, "ethernet") == pytest.approx(1e-3 + BYTES / 1e7)


def test_replicas_in_step_share_a_nic_and_a_slow_trunk():
    """Two replicas fill a node: both messages leave it over one NIC, and cross the trunk together."""
    question = two_clusters(trunk=2e6)
    messages, (a, b), two = PlanningContext(question).messages, question.clusters(), shape(dp=2)
    assert messages.in_step((a, b), two)
    assert messages.hop(a, 0, a, 1, two, "ethernet") == pytest.approx(2 * BYTES / 1e7)
    assert messages.hop(a, 0, a, 1, two, "ethernet", in_step=False) == pytest.approx(BYTES / 1e7)
    assert messages.hop(a, 0, b, 0, two, "ethernet") == pytest.approx(1e-3 + 2 * BYTES / 2e6)


@pytest.mark.parametrize(("dp", "keeps"), [(1, True), (2, True), (3, False), (4, True)])
def test_replicas_keep_step_where_stages_fill_nodes_or_equal_parts_of_them(dp, keeps):
    question = two_clusters()
    assert PlanningContext(question).messages.in_step(question.clusters(), shape(dp=dp)) is keeps


def test_the_least_message_of_a_cluster_is_the_one_inside_a_node():
    question = two_clusters()
    messages, (a, b), one = PlanningContext(question).messages, question.clusters(), shape()
    assert messages.least(a, a, one) == pytest.approx(BYTES / 1e8)
    assert messages.least(a, b, one) == pytest.approx(1e-3 + BYTES / 1e7)
    assert messages.crossing(a, [a, b], one) == pytest.approx(BYTES / 1e8)


def test_no_trunk_means_no_message():
    question = two_clusters()
    alone = replace(question, topology=replace(question.topology, fleet=replace(question.topology.fleet, trunks=())))
    messages, (a, b) = PlanningContext(alone).messages, alone.clusters()
    assert messages.least(a, b, shape()) == math.inf
    assert messages.crossing(a, [a, b], shape()) == math.inf
    with pytest.raises(NoRoute):
        messages.hop(a, 0, b, 0, shape(), "ethernet")


@given(st.integers(0, 59), st.integers(1, 3), st.data())
def test_no_message_is_shorter_than_the_least(seed, dp, data):
    question, one = random_request(seed), shape(dp=dp)
    context = PlanningContext(question)
    able = [cluster for cluster in question.clusters() if slots(cluster, 1) >= dp]
    assume(able and question.workload.global_batch_size % dp == 0)
    a, b = data.draw(st.sampled_from(able)), data.draw(st.sampled_from(able))
    most_a, most_b = slots(a, 1) // dp, slots(b, 1) // dp
    i = data.draw(st.integers(0, most_a - 1))
    j = i + 1 if a == b else data.draw(st.integers(0, most_b - 1))
    assume(j < most_b and (a == b or not j))  # a stage of another cluster sends to the first stage of a cluster
    nic = context.fleets.nic_of((a, b) if a != b else (a,))
    in_step = context.messages.in_step((a, b), one)
    found = context.messages.hop(a, i, b, j, one, nic, in_step)
    assert context.messages.least(a, b, one, nic, (a, b)) <= found * (1 + 1e-12)
