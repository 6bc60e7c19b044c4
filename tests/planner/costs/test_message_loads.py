"""Seconds of the busiest link for all messages of a microbatch, by hand. A message has 12,288 bytes."""

from __future__ import annotations

import pytest
from hypothesis import given

from planner.costs.context import PlanningContext
from planner.placement.simulation import simulate_plan, step
from planner.request import Request
from tests import builders as make
from tests.planner.builders import Drawn, drawn_plans, request, shape
from tests.planner.search.searches import candidate

BYTES = 64 * 96 * 2


def on_nodes(nodes: int, devices: int = 1) -> Request:
    """Nodes joined by Ethernet of 1e7 bytes a second, 1e8 inside."""
    machines = make.cluster(
        "c", nodes, devices, (make.nic("ethernet", 1e7, latency=1e-3),), intra_node=make.wire(bandwidth=1e8)
    )
    return request(make.fleet(machines), make.model(4))


def test_a_middle_node_sends_activations_ahead_and_gradients_back():
    """An end node sends one message a microbatch, a middle node two; latency does not load a link."""
    question = on_nodes(3)
    loads, (cluster,) = PlanningContext(question).loads, question.clusters()
    assert loads.whole_pipeline(((cluster, 1),), shape(), "ethernet") == 0.0
    assert loads.whole_pipeline(((cluster, 2),), shape(), "ethernet") == pytest.approx(BYTES / 1e7)
    assert loads.whole_pipeline(((cluster, 3),), shape(), "ethernet") == pytest.approx(2 * BYTES / 1e7)


def test_replicas_of_a_node_share_its_nic():
    question = on_nodes(3, devices=2)
    loads, (cluster,) = PlanningContext(question).loads, question.clusters()
    assert loads.whole_pipeline(((cluster, 2),), shape(dp=2), "ethernet") == pytest.approx(2 * BYTES / 1e7)
    assert loads.whole_pipeline(((cluster, 3),), shape(dp=2), "ethernet") == pytest.approx(4 * BYTES / 1e7)


def test_virtual_stages_send_from_the_last_stage_to_the_first_too():
    """Two stages with vpp 2: node 0 sends both its activations, and one gradient back round: three messages."""
    question = on_nodes(2)
    loads, (cluster,) = PlanningContext(question).loads, question.clusters()
    two = shape(schedule="interleaved", vpp=2)
    assert loads.whole_pipeline(((cluster, 2),), two, "ethernet") == pytest.approx(3 * BYTES / 1e7)


def test_the_least_load_of_a_node_inside_a_pipeline():
    question = on_nodes(3)
    loads, (cluster,) = PlanningContext(question).loads, question.clusters()
    assert loads.node_loads(cluster, [cluster], shape()) == (pytest.approx(2 * BYTES / 1e7), 0.0)
    short = on_nodes(1)
    (cluster,) = short.clusters()
    assert PlanningContext(short).loads.node_loads(cluster, [cluster], shape()) == (0.0, 0.0)


@given(drawn_plans(least_stages=2))
def test_no_step_is_shorter_than_all_its_messages_on_the_busiest_link(drawn: Drawn):
    found = candidate(PlanningContext(drawn.request), drawn.shape, drawn.stages)
    link = found.evaluation.link_seconds(found.pipeline)
    assert link <= step(simulate_plan(drawn.plan)) * (1 + 1e-9)
