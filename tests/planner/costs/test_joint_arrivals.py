"""What the links of a stage need for messages from both its neighbours: literal seconds."""

from __future__ import annotations

import pytest

from planner.costs.context import PlanningContext
from planner.costs.joint_arrivals import joint_seconds
from planner.costs.mixed_stages import MixedStageCosts
from planner.space.device_slots import Run
from planner.space.shapes import slot
from tests import builders as make
from tests.planner.builders import on_one_cluster, shape

BYTES = 64 * 96 * 2


@pytest.mark.parametrize(
    ("devices", "inside", "dp", "stage", "seconds"),
    [
        (1, 1e9, 1, 1, 2 * BYTES / 1e5),  # both messages come over the NIC of the only device of a node
        (2, 1e9, 1, 1, 0.0),  # that from stage 0 comes from the same node, that from stage 2 over the NIC
        (2, 1e9, 2, 1, 4 * BYTES / 1e5),  # two replicas on a node of one NIC keep step
        (4, 1e6, 1, 1, 2 * BYTES / 1e6),  # both come from the same node
    ],
)
def test_two_messages_share_what_leads_to_their_target(devices, inside, dp, stage, seconds):
    question = on_one_cluster(
        8, nodes=4, devices=devices, nics=(make.nic("ethernet", 1e5),), intra_node=make.wire(bandwidth=inside)
    )
    context, (cluster,) = PlanningContext(question), question.clusters()
    one = shape(dp=dp)
    together = context.messages.together((cluster,), one)
    ends = ((cluster, stage - 1), (cluster, stage), (cluster, stage + 1))
    assert context.messages.both(*ends, one, "ethernet", together) == pytest.approx(seconds)
    peers = MixedStageCosts(context).peers
    runs = tuple(Run(cluster, dp * (stage + i), dp) for i in (-1, 0, 1))
    assert peers.both(one, runs, dp) == pytest.approx(seconds)


def test_links_of_one_message_alone_do_not_count():
    question = on_one_cluster(8, nodes=3, devices=1, nics=(make.nic("ethernet", 1e5),))
    (cluster,), fleets = question.clusters(), PlanningContext(question).fleets
    devices = [slot(cluster, 1, index)[0] for index in range(3)]
    ahead, away = [(devices[0], devices[1], "ethernet")], [(devices[1], devices[2], "ethernet")]
    assert joint_seconds(fleets.fleet, fleets.capacities, ahead, away) == 0.0
    assert joint_seconds(fleets.fleet, fleets.capacities, ahead, ahead) == pytest.approx(2 / 1e5)
