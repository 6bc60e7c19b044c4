"""How many stages a pipeline may have so that its busiest link carries all messages in time."""

from __future__ import annotations

import pytest

from planner.bounds.link_load import LinkLoad
from planner.bounds.ordered_stages import OrderedStages
from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes
from tests import builders as make
from tests.planner.builders import on_one_cluster, shape

MESSAGE = 64 * 96 * 2 / 1e7
"""Seconds of a message of 64 tokens of 96 values of 2 bytes over the NIC of a node."""


@pytest.fixture(scope="module")
def four_nodes() -> LinkLoad:
    """Four nodes of one device, six microbatches."""
    question = on_one_cluster(layers=8, batch=6, nodes=4, nics=(make.nic("ethernet", 1e7),))
    context = PlanningContext(question)
    return LinkLoad(OrderedStages(context, node_classes(context, shape())))


@pytest.mark.parametrize(
    ("messages", "stages"),
    [(12.0, 4), (11.9, 2), (6.0, 2), (5.9, 0)],  # a node inside the pipeline sends two messages a microbatch, an end node one
)
def test_the_most_stages_by_the_time_of_messages(four_nodes, messages, stages):
    """All messages, and then the tail of the first stage, are within so many seconds."""
    assert four_nodes.most_stages(messages * MESSAGE * (1 + 1e-9) + four_nodes.tail) == [stages]


@pytest.mark.parametrize(("pp", "messages"), [(2, 6.0), (3, 12.0), (4, 12.0)])
def test_a_pipeline_is_carried_within_the_seconds_of_its_messages(four_nodes, pp, messages):
    assert four_nodes.carries([pp], pp, messages * MESSAGE * (1 + 1e-9) + four_nodes.tail)
    assert not four_nodes.carries([pp], pp, messages * MESSAGE * (1 - 1e-9) + four_nodes.tail)


def test_the_least_step_has_all_layers_there_and_back_beside_the_messages_before_the_last_forward(four_nodes):
    """Of four nodes, the third has sent five activations when its last forward ends, and four gradients: two more backwards
    follow. Beside these nine messages, a first microbatch has passed two borders, and the last one passes one, and three back;
    both together pass all eight layers there and back."""
    (_, both_ways, _), (hop,) = four_nodes.stages.rates[0], set(four_nodes.stages.hops([0, 0]))
    assert four_nodes.least([0] * 4, 7.0) == pytest.approx(8 * both_ways + 6 * hop + 9 * MESSAGE + 7.0)


def test_the_least_step_has_the_stages_before_the_first_message_and_behind_the_last(four_nodes):
    """Of two nodes, the second sends gradients only, behind both forwards; after the last of them there is one backward."""
    (forward, _, backward), (hop,) = four_nodes.stages.rates[0], set(four_nodes.stages.hops([0, 0]))
    assert four_nodes.least([0] * 2, 7.0) == pytest.approx(2 * forward + hop + 6 * MESSAGE + backward + 7.0)


def test_a_schedule_whose_sends_overlap_has_the_stages_before_the_first_message_and_behind_the_last():
    """Of four nodes, the third sends from its forward on, behind three forwards and two messages, and after its last gradients
    have arrived, they pass a message and two stages."""
    question = on_one_cluster(layers=8, batch=6, nodes=4, nics=(make.nic("ethernet", 1e7),))
    context = PlanningContext(question)
    load = LinkLoad(OrderedStages(context, node_classes(context, shape(schedule="zb-h1"))))
    (forward, _, backward), (hop,) = load.stages.rates[0], set(load.stages.hops([0, 0]))
    assert load.least([0] * 4, 7.0) == pytest.approx(3 * forward + 2 * hop + 12 * MESSAGE + 2 * backward + hop + 7.0)


def test_counts_that_are_only_the_most_of_each_class_rule_nothing_out(four_nodes):
    assert four_nodes.carries([4], 3, 0.0)
