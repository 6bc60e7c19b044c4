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
    assert messages.together((a, b), two) == 0
    assert messages.hop(a, 0, a, 1, two, "ethernet") == pytest.approx(2 * BYTES / 1e7)
    assert messages.hop(a, 0, a, 1, two, "ethernet", together=1) == pytest.approx(BYTES / 1e7)
    assert messages.hop(a, 0, b, 0, two, "ethernet") == pytest.approx(1e-3 + 2 * BYTES / 2e6)


@pytest.mark.parametrize(("dp", "together"), [(1, 0), (2, 0), (3, 1), (4, 0)])
def test_all_replicas_keep_step_where_stages_fill_nodes_or_equal_parts_of_them(dp, together):
    question = two_clusters()
    assert PlanningContext(question).messages.together(question.clusters(), shape(dp=dp)) == together


@pytest.mark.parametrize(
    ("count", "nics", "socket_link", "dp", "tp", "together"),
    [
        (3, 1, 0.0, 3, 1, 0), (3, 2, 0.0, 3, 1, 1), (3, 2, 0.0, 1, 3, 0), (4, 6, 0.0, 4, 1, 1), (4, 2, 0.0, 2, 1, 0),
        (6, 3, 0.0, 3, 1, 1), (4, 2, 1e8, 4, 1, 1), (4, 2, 1e8, 2, 1, 0), (4, 2, 1e8, 2, 4, 0),
    ],
)  # fmt: skip
def test_replicas_of_whole_nodes_surely_keep_step_only_with_equal_nics(count, nics, socket_link, dp, tp, together):
    """Of three devices with two NICs, the third sends alone, and runs ahead; a stage of three devices of six has a NIC and a
    half. Messages of the devices of the second CPU cross the link to the NICs on the first one."""
    nic = replace(make.nic("ethernet", 1e7, nics), socket=0 if socket_link else None)
    a = make.cluster("a", 4, count, (nic,))
    question = request(make.fleet(replace(a, node=replace(a.node, socket_link=socket_link))), make.model(4), 12)
    messages, one = PlanningContext(question).messages, shape(dp=dp, tp=tp)
    assert messages.together(question.clusters(), one) == together
    assert messages.together(question.clusters(), one, surely=False) == 0


def eight_devices(nics: int, batch: int = 48) -> Request:
    """A cluster of six nodes of eight devices with some Ethernet NICs."""
    a = make.cluster("a", 6, 8, (make.nic("ethernet", 1e7, nics),), intra_node=make.wire(bandwidth=1e8))
    return request(make.fleet(a), make.model(4), batch)


@pytest.mark.parametrize(
    ("dp", "tp", "nics", "together", "on_nic"),
    [
        (12, 1, 1, 4, 4), (12, 1, 2, 4, 4), (12, 1, 4, 4, 2), (12, 1, 3, 1, 1),
        (6, 2, 1, 2, 2), (6, 1, 4, 2, 2), (3, 2, 1, 1, 1), (16, 1, 1, 0, 8),
    ],
)  # fmt: skip
def test_the_first_replicas_keep_step_where_one_node_holds_them_at_every_stage(dp, tp, nics, together, on_nic):
    """Stages of 12 slots begin at devices 0 and 4 of nodes of 8, so four replicas are always on one node, with equal NICs
    unless three NICs serve eight devices. on_nic: replicas on the first NIC whose messages surely leave at the same time."""
    question = eight_devices(nics)
    context, one = PlanningContext(question), shape(dp=dp, tp=tp)
    (a,) = question.clusters()
    assert context.messages.together((a,), one) == together
    assert context.messages.hop(a, 0, a, 2, one, "ethernet", together) == pytest.approx(on_nic * BYTES / 1e7)


def test_of_unequal_replicas_those_with_most_microbatches_keep_step():
    """Of 12 replicas with 26 sequences, two have three and ten have two: the step takes as long as the first two at least."""
    question = eight_devices(1, batch=26)
    context, one = PlanningContext(question), shape(dp=12)
    assert context.messages.together(question.clusters(), one) == 2
    assert context.messages.together(question.clusters(), one, surely=False) == 4


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
    together = context.messages.together((a, b), one)
    found = context.messages.hop(a, i, b, j, one, nic, together)
    assert context.messages.least(a, b, one, nic, (a, b)) <= found * (1 + 1e-12)


def test_the_least_of_both_directions_counts_where_tcp_limits_what_a_device_sends():
    """A rank with tp 1 sends both halves over its connections, of 1e4 bytes in 2 ms; two ranks with tp 2 send one each."""
    clusters = [make.cluster(name, 2, 2, (make.nic("ethernet", 1e8),), intra_node=make.wire(bandwidth=1e9)) for name in "ab"]
    trunk = Trunk(("a", "b"), "ethernet", 1e9, 1e-3, window=1e4)
    question = request(make.fleet(*clusters, trunks=(trunk,)), make.model(4))
    messages, (a, b) = PlanningContext(question).messages, question.clusters()
    narrow = shape(tp=2, cluster_tp=(("a", 1), ("b", 2)))
    assert messages.hop(a, 3, b, 0, narrow, "ethernet") == pytest.approx(1e-3 + BYTES / 5e6)
    assert messages.hop(b, 0, a, 3, narrow, "ethernet") == pytest.approx(1e-3 + BYTES / 2 / 5e6)
    assert messages.least(a, b, narrow) == messages.least(b, a, narrow) == pytest.approx(1e-3 + BYTES / 2 / 5e6)
