"""Seconds of messages between stages of unlike degrees, computed by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass, node_classes
from planner.costs.unlike_messages import UnlikeMessages
from planner.request import Request
from sim.hardware.cluster import Trunk
from tests import builders as make
from tests.planner.builders import request, shape

BYTES = 4 * 64 * 96 * 2
"""Of the four samples of a microbatch: 64 tokens of 96 values of 2 bytes each."""
RATE, TRUNK, LATENCY = 1e7, 4e6, 1e-3
"""Bytes per second of the NIC of a node and of the trunk; seconds of latency of the trunk."""


def question(trunk: float = RATE * 8, nics: int = 1) -> Request:
    """Three nodes of two devices, and one of eight."""
    wire = make.wire(bandwidth=1e8)
    a, b = (
        make.cluster(name, nodes, count, (make.nic("ethernet", RATE, nics if name == "b" else 1),), intra_node=wire)
        for name, nodes, count in (("a", 3, 2), ("b", 1, 8))
    )
    return request(make.fleet(a, b, trunks=(Trunk(("a", "b"), "ethernet", trunk, LATENCY),)), make.model(4), 8)


def options(asked: Request, **degrees: tuple[int, int]) -> tuple[UnlikeMessages, list[NodeClass]]:
    """The class of each cluster with its (tp, dp), each stage with four samples."""
    context = PlanningContext(asked)
    found = []
    for name, (tp, dp) in degrees.items():
        own = shape(tp=tp, dp=dp, microbatch_size=4 // dp)
        found += [option for option in node_classes(context, own) if option.cluster.name == name]
    return UnlikeMessages(context), found


@pytest.mark.parametrize(
    ("a", "b", "seconds"),
    [
        ((1, 2), (2, 4), BYTES / RATE),  # one node on both sides
        ((1, 4), (2, 4), BYTES / RATE),  # two nodes send a half each, one node receives all
        ((1, 1), (2, 2), BYTES / RATE),  # two stages of `a` fill a node, and two of `b`
        ((1, 1), (2, 1), BYTES / RATE),  # one rank sends all; two receive a half each over one NIC
    ],
)
def test_a_node_carries_the_message_of_its_whole_stage(a, b, seconds):
    messages, (here, there) = options(question(), a=a, b=b)
    between = messages.between([[here], [there]])
    assert between[0][1] == pytest.approx(LATENCY + seconds)
    assert between[1][0] == pytest.approx(LATENCY + seconds)


def test_a_slow_trunk_carries_the_whole_message():
    messages, (here, there) = options(question(trunk=TRUNK), a=(1, 4), b=(2, 4))
    assert messages.between([[here], [there]])[0][1] == pytest.approx(LATENCY + BYTES / TRUNK)


def test_ranks_that_may_run_ahead_find_links_free():
    """Three devices of `a` fill one node and a half, so that its stages do not keep step: the part of one rank counts."""
    asked = question(trunk=TRUNK)
    context = PlanningContext(asked)
    uneven = shape(dp=3, microbatch_size=1)
    even = shape(tp=2, dp=3, microbatch_size=1)
    (here,) = (option for option in node_classes(context, uneven) if option.cluster.name == "a")
    (there,) = (option for option in node_classes(context, even) if option.cluster.name == "b")
    part = 3 * BYTES / 4 / 6
    assert UnlikeMessages(context).between([[here], [there]])[0][1] == pytest.approx(LATENCY + part / TRUNK)


def test_devices_with_nics_of_their_own_share_none():
    messages, (here, there) = options(question(nics=8), a=(1, 2), b=(2, 4))
    assert messages.between([[here], [there]])[0][1] == pytest.approx(LATENCY + BYTES / RATE)
    messages, (here, there) = options(question(nics=8, trunk=RATE * 80), a=(1, 4), b=(2, 4))
    assert messages.between([[here], [there]])[0][1] == pytest.approx(LATENCY + BYTES / 2 / RATE)


def test_stages_of_a_cluster_send_over_its_nics_where_they_fill_nodes():
    messages, (here, there) = options(question(), a=(1, 2), b=(2, 4))
    between = messages.between([[here], [there]])
    assert between[0][0] == pytest.approx(BYTES / RATE)
    assert math.isinf(between[1][1])  # a single stage has no neighbour of its cluster


def test_clusters_without_a_common_nic_are_no_neighbours():
    a, b = (make.cluster(kind[0], 1, 2, (make.nic(kind, RATE),)) for kind in ("ethernet", "roce"))
    asked = request(make.fleet(a, b), make.model(4), 8)
    messages, found = options(asked, e=(1, 2), r=(2, 1))
    assert math.isinf(messages.between([[one] for one in found])[0][1])


def test_the_direction_in_which_more_devices_send_counts_where_tcp_limits_each():
    """Each device sends 1e3 bytes in a round trip of 2 ms: one rank of `a` all of a message, four of `b` a quarter each."""
    asked = question()
    trunk = Trunk(("a", "b"), "ethernet", RATE * 8, LATENCY, window=1e3)
    topology = replace(asked.topology, fleet=replace(asked.topology.fleet, trunks=(trunk,)))
    messages, (here, there) = options(replace(asked, topology=topology), a=(1, 1), b=(1, 4))
    assert messages.between([[here], [there]])[0][1] == pytest.approx(LATENCY + BYTES / 4 / 5e5)
