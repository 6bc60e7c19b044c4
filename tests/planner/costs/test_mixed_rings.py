"""Links that gradients and weights of mixed stages share, computed by hand for nodes of two devices on two clusters."""

from __future__ import annotations

import pytest

from planner.costs.context import PlanningContext
from planner.costs.mixed_rings import Load, MixedRings, RingLoads, least_seconds, least_together
from planner.request import Request
from planner.space.device_slots import Run, StageSlots
from sim.hardware.cluster import Trunk
from sim.kernels import payloads
from tests import builders as make
from tests.planner.builders import request, shape

WIRE = 1e6
"""Bytes per second of each node's Ethernet NIC."""


def two_clusters(nodes: int = 2) -> Request:
    """Clusters a and b of nodes with two devices; a fast trunk joins them."""
    a, b = (make.cluster(name, nodes, 2, (make.nic("ethernet", WIRE),), intra_node=make.wire(bandwidth=1e9)) for name in "ab")
    return request(make.fleet(a, b, trunks=(Trunk(("a", "b"), "ethernet", 1e9, 0.0),)), make.model(4))


def stages(question: Request, *first: int) -> tuple[StageSlots, ...]:
    """Stages with a replica on each cluster, on the slot of this index."""
    a, b = question.clusters()
    return tuple((Run(a, index, 1), Run(b, index, 1)) for index in first)


def exchanged(question: Request, layers: int, first: bool, last: bool) -> float:
    """Seconds in which half of a stage's gradients, and half of its weights, leave a node."""
    held = question.workload, shape(dp=2).config(question.workload, 2), layers, first, last
    return sum(dict(of(*held))["dp"] / 2 / WIRE for of in (payloads.gradient_bytes, payloads.parameter_bytes))


def test_two_stages_of_a_node_share_its_nic_and_the_last_of_them_waits():
    question = two_clusters()
    loads = MixedRings(PlanningContext(question)).loads(shape(dp=2), stages(question, 0, 1))
    both = exchanged(question, 3, True, False) + exchanged(question, 1, False, True)
    assert loads.seconds(1, (3, 1)) == pytest.approx(both)
    assert loads.seconds(0, (3, 1)) < both / 1000, "no slow link has the first stage alone"


def test_stages_of_unlike_nodes_share_no_nic():
    """Each of the two stages has nodes of its own, and the second one's positions are those of the first."""
    question = two_clusters()
    rings = MixedRings(PlanningContext(question))
    loads = rings.loads(shape(dp=2), stages(question, 0, 2))
    assert loads.seconds(0, (3, 1)) == pytest.approx(exchanged(question, 3, True, False))
    assert loads.seconds(1, (3, 1)) == pytest.approx(exchanged(question, 1, False, True))


def test_layers_that_others_cannot_hold_load_the_link():
    """Stage 2 with two layers, beside stages 0 and 1 that hold five layers together, or at least one each."""
    link = Load(0, 1.0, 0.5, 0.25, 0.25), Load(1, 0.25, 0.125), Load(2, 2.0, 1.0, 1.0, 0.5)
    assert RingLoads((link,)).seconds(2, (1, 4, 2)) == 1 + 0.5 + 0.25 + 4 * 0.125 + 2 + 2
    assert least_seconds(link, 2, 5).both == 1 + 0.25 + 5 * 0.125 + 2 + 2 <= RingLoads((link,)).seconds(2, (1, 4, 2))
    assert least_seconds(link, 2, 0) == (0.25 + 1 + 2 * 0.5, 1 + 0.25 + 2 * 0.125 + 2 + 2)
    assert least_seconds(link[:1], 3, 7) == (0.25 + 3 * 0.25, 1 + 3 * 0.5)
    assert least_together(link, 7) == (0.25 + 1, 1 + 0.25 + 2 + 7 * 0.125)
    assert least_together(link, 2) == (0.25 + 1, 1 + 0.25 + 2 + 3 * 0.125)
