"""Messages between given stages of a pipeline: literal seconds."""

from __future__ import annotations

import pytest

from planner.bounds.ordered_stages import OrderedStages
from planner.bounds.stage_hops import StageHops, least_messages
from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes
from sim.hardware.cluster import Fabric
from tests import builders as make
from tests.planner.builders import on_one_cluster, shape


@pytest.mark.parametrize(("fabric", "between"), [(None, 1e7), (Fabric(2, 4.0), 1e8)])
def test_where_two_stages_fill_a_node_every_second_message_leaves_it(fabric, between):
    """12,288 bytes, 1e8 bytes a second inside a node and 1e7 between nodes. On an oversubscribed fabric, stages may have other
    nodes: the least message counts."""
    question = on_one_cluster(
        nodes=4, devices=2, nics=(make.nic("ethernet", 1e7),), fabric=fabric, intra_node=make.wire(bandwidth=1e8)
    )
    context = PlanningContext(question)
    stages = OrderedStages(context, node_classes(context, shape()))
    assert stages.hops([0, 0, 0, 0]) == pytest.approx([12_288 / 1e8, 12_288 / between, 12_288 / 1e8])
    assert stages.hops([0]) == []


def test_messages_of_both_neighbours_share_the_nic_of_a_node_with_one_device():
    question = on_one_cluster(nodes=4, devices=1, nics=(make.nic("ethernet", 1e5),))
    context = PlanningContext(question)
    (option,) = node_classes(context, shape())
    hops = StageHops(context, shape(), (option.cluster,), "ethernet", ([0.1], []))
    assert hops.both([0, 0, 0, 0]) == pytest.approx([0.0, 2 * 12_288 / 1e5, 2 * 12_288 / 1e5, 0.0])
    assert hops.both([0, 0]) == hops.none([0, 0]) == [0.0, 0.0]


def test_least_messages_are_those_inside_a_class_and_over_its_borders():
    question = on_one_cluster(nodes=4, devices=1, nics=(make.nic("ethernet", 1e5),))
    (option,) = node_classes(PlanningContext(question), shape())
    assert least_messages([option, option, option], [3.0, 3.0, 3.0], [1.0, 5.0]) == ([1.0, 3.0, 3.0], [3.0, 1.0, 3.0])
