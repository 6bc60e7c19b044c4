"""No simulated step is below the bound of the busiest links, which counts the messages of nodes by hand here."""

from __future__ import annotations

import pytest
from hypothesis import given

from planner.costs.busy_links import BusyLink, busy_links, least_steps
from planner.costs.context import PlanningContext
from planner.placement.simulation import simulate_plan, step
from tests.planner.builders import Drawn, drawn_plans, shape
from tests.planner.costs.test_message_loads import BYTES, on_nodes
from tests.planner.search.searches import candidate

MESSAGE = pytest.approx(BYTES / 1e7)


def links(nodes: int, vpp: int = 1) -> list[BusyLink]:
    """The busiest links of a pipeline with a stage on each node."""
    question = on_nodes(nodes)
    one = shape(schedule="interleaved" if vpp > 1 else "1f1b", vpp=vpp)
    (cluster,) = question.clusters()
    ends = [(cluster, stage) for stage in range(nodes)]
    return busy_links(PlanningContext(question).loads, ends, one, "ethernet")


def test_the_first_node_sends_activations_and_the_last_one_gradients():
    assert sorted(links(2)) == [BusyLink(MESSAGE, -1, -1, 1, 1), BusyLink(MESSAGE, 0, 0, -1, -1)]


def test_a_middle_node_sends_both_and_receives_both():
    """It sends after stage 1; and it receives what stages 0 and 2 send to it."""
    busiest = [link for link in links(3) if link.seconds == pytest.approx(2 * BYTES / 1e7)]
    assert sorted(link[1:] for link in busiest) == [(0, 0, 2, 2), (1, 1, 1, 1)]


def test_virtual_stages_send_from_the_first_chunk_to_the_last():
    """Two stages with vpp 2 are virtual stages 0 and 2 on the first node, which sends after both, and gradients after 2."""
    assert BusyLink(pytest.approx(3 * BYTES / 1e7), 0, 2, 2, 2) in links(2, vpp=2)


def test_replicas_that_cross_other_nodes_have_no_busy_links():
    """Stages of two replicas on nodes of three devices: the second one's messages cross another border."""
    (cluster,) = on_nodes(3, devices=3).clusters()
    ends = [(cluster, stage) for stage in range(3)]
    loads = PlanningContext(on_nodes(3, devices=3)).loads
    assert busy_links(loads, ends, shape(dp=2), "ethernet") == []
    assert busy_links(loads, ends, shape(dp=3), "ethernet")


@given(drawn_plans(least_stages=2))
def test_no_step_is_below_the_bound_of_the_busiest_links(drawn: Drawn):
    found = candidate(PlanningContext(drawn.request), drawn.shape, drawn.stages, least=True)
    of, pipeline = found.evaluation, found.pipeline
    busy = of.busy_links_of(tuple(i for i, _ in pipeline))
    m = drawn.shape.least_microbatches(drawn.request.workload)
    (bound,) = least_steps(of.candidates([pipeline]), busy, m)
    assert of.link_seconds(pipeline) <= bound <= step(simulate_plan(drawn.plan)) * (1 + 1e-9)
