"""Messages between stages of classes in any order."""

from __future__ import annotations

import math

import numpy as np
import pytest

from planner.bounds.any_neighbours import least_tied, messages_between
from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes
from planner.space.shape import Shape
from sim.hardware.cluster import Trunk
from tests import builders as make
from tests.planner.builders import request

SHAPE = Shape(1, 1, 1, "none", "1f1b", 1, 1)
MESSAGE = 64 * 96 * 2
"""Bytes: 64 tokens of 96 values in bf16."""


def context(tied: bool = False) -> PlanningContext:
    """Clusters a, b and c of one, one and two nodes of one device; a and c are joined by way of b."""
    nic = make.nic("ethernet", 1e6, latency=1e-3)
    clusters = [make.cluster(name, nodes=nodes, nics=(nic,)) for name, nodes in (("a", 1), ("b", 1), ("c", 2))]
    trunks = (Trunk(("a", "b"), "ethernet", 5e5, 0.1), Trunk(("b", "c"), "ethernet", 2e6, 0.2))
    return PlanningContext(request(make.fleet(*clusters, trunks=trunks), make.model(4, tied_embeddings=tied), 4))


def test_each_two_classes_have_a_message_of_their_own():
    """Over trunks, of which one has 0.5 MB/s, and over NICs of 1 MB/s. A cluster of one device has no message inside."""
    one = context()
    a_b, b_c, a_c, c_c = 0.1 + MESSAGE / 5e5, 0.2 + MESSAGE / 1e6, 0.3 + MESSAGE / 5e5, 1e-3 + MESSAGE / 1e6
    expected = [[math.inf, a_b, a_c], [a_b, math.inf, b_c], [a_c, b_c, c_c]]
    found = messages_between(one, node_classes(one, SHAPE))
    assert np.array(found) == pytest.approx(np.array(expected), abs=2e-3)


def test_messages_inside_a_cluster_use_nics_that_join_it_to_another():
    """InfiniBand inside a does not join it to b, so a pipeline on both uses Ethernet on a, too."""
    ethernet, infiniband = make.nic("ethernet", 1e6, latency=1e-3), make.nic("infiniband", 1e9, latency=1e-6)
    clusters = [make.cluster("a", nodes=2, nics=(infiniband, ethernet)), make.cluster("b", nodes=2, nics=(ethernet,))]
    one = PlanningContext(request(make.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 5e5, 0.1),)), make.model(4), 4))
    found = messages_between(one, node_classes(one, SHAPE))
    assert found[0][0] == pytest.approx(1e-3 + MESSAGE / 1e6, abs=2e-3)
    assert one.messages.least(clusters[0], clusters[0], SHAPE) < 1e-4


def test_the_least_tied_embedding_is_that_between_the_nearest_ends():
    """Inside c, the gradient of 768 x 96 values in fp32 passes the NICs once in each direction."""
    one = context(tied=True)
    assert least_tied(one, node_classes(one, SHAPE)) == pytest.approx(2 * 1e-3 + 768 * 96 * 4 / 1e6, rel=0.1)
    assert least_tied(context(), node_classes(context(), SHAPE)) == 0.0
