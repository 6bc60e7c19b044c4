"""Messages between stages whose replicas are on several clusters, computed by hand."""

from __future__ import annotations

import pytest

from planner.costs.context import PlanningContext
from planner.costs.mixed_messages import MixedMessages
from planner.space.device_slots import Run
from sim.hardware.cluster import Trunk
from sim.kernels import payloads
from tests import builders as make
from tests.planner.builders import request, shape
from tests.planner.costs.fast_and_slow import BYTES, fast_and_slow


def test_what_leaves_a_node_shares_its_nic():
    question = fast_and_slow()
    messages, (a, _) = MixedMessages(PlanningContext(question)), question.clusters()
    assert messages.leaves(shape(dp=2), Run(a, 0, 2), Run(a, 2, 2)) == pytest.approx(2 * BYTES / 1e7)
    assert messages.leaves(shape(dp=1), Run(a, 0, 1), Run(a, 2, 1)) == pytest.approx(BYTES / 1e7)
    assert messages.leaves(shape(dp=1), Run(a, 0, 1), Run(a, 1, 1)) == 0.0


def test_messages_of_slots_that_send_together_share_a_trunk():
    question = fast_and_slow()
    messages, (a, b) = MixedMessages(PlanningContext(question)), question.clusters()
    one = shape(dp=2)
    assert messages.sent(one, Run(a, 0, 2), Run(b, 0, 2), 1) == pytest.approx(BYTES / 1e6)
    assert messages.sent(one, Run(a, 0, 2), Run(b, 0, 2), 2) == pytest.approx(2 * BYTES / 1e6)
    assert messages.sent(one, Run(a, 0, 2), Run(a, 2, 2), 2) == pytest.approx(2 * BYTES / 1e7)
    assert messages.sent(one, Run(a, 0, 1), Run(a, 1, 1), 1) == pytest.approx(BYTES / 1e8)  # inside a node


def test_all_messages_between_nodes_of_a_pipeline_use_one_type_of_nics():
    """Clusters a and b have InfiniBand each and are joined by Ethernet only: a pipeline on both sends over Ethernet inside a,
    too; one on a alone over InfiniBand."""
    nics = make.nic("infiniband", 1e7), make.nic("ethernet", 1e6)
    clusters = [make.cluster(name, 2, 1, nics) for name in "ab"]
    fleet = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 1e9, 0.0),))
    question = request(fleet, make.model(4))
    messages, (a, b) = MixedMessages(PlanningContext(question)), question.clusters()
    one, runs = shape(dp=1), (Run(a, 0, 1), Run(a, 1, 1), Run(b, 0, 1))
    assert (messages.nic(runs, 1), messages.nic(runs[:2], 1)) == ("ethernet", "")
    assert messages.sent(one, *runs[:2], 1, "ethernet") == pytest.approx(BYTES / 1e6)
    assert messages.sent(one, *runs[:2], 1) == messages.leaves(one, *runs[:2]) == pytest.approx(BYTES / 1e7)
    assert messages.leaves(one, *runs[:2], "ethernet") == pytest.approx(BYTES / 1e6)


@pytest.mark.parametrize(("tied", "together"), [(True, 1), (True, 2), (False, 1)])
def test_the_sum_of_a_tied_embedding_shares_the_nic_of_the_first_stage(tied, together):
    """Each of the replicas on the first stage's node sends the gradient of the whole table over the node's NIC."""
    nics = (make.nic("ethernet", 1e6),)
    clusters = [make.cluster(name, 1, 2, nics) for name in "ab"]
    fleet = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 1e9, 0.0),))
    question = request(fleet, make.model(4, tied_embeddings=tied))
    messages, (a, b) = MixedMessages(PlanningContext(question)), question.clusters()
    one, runs = shape(dp=together), (Run(a, 0, together), Run(b, 0, together))
    table = payloads.tied_bytes(question.workload, one.config(question.workload, 2))
    assert (table > 0) == tied
    assert messages.tied(one, runs, "ethernet") == pytest.approx(together * table / 1e6)
    assert messages.tied(one, runs[:1]) == 0.0
