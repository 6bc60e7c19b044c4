"""Messages that leave a node, counted by hand."""

from __future__ import annotations

import pytest

from planner.bounds.node_messages import INSIDE, Place, least_sent, most_sent

FIRST, LAST = Place(before=False, behind=True), Place(before=True, behind=False)


@pytest.mark.parametrize(
    ("ranks", "per_node", "stages", "first", "inside"),
    [
        (4, 8, 1, 4, 8),  # half a node, all of whose ranks send ahead, and back if there are stages before
        (4, 8, 2, 4, 8),  # two stages on a node: the second sends ahead, and the first back
        (4, 8, 3, 8, 8),  # the third, on a node of its own, sends back to the first node, too
        (8, 8, 1, 8, 16),
        (8, 8, 2, 16, 16),
        (16, 8, 1, 8, 16),  # two nodes, each of which sends for its own ranks
        (6, 8, 2, 8, 12),  # ranks 2 to 5 of both stages are on unlike nodes: 4 ahead and 4 back; or 6 back, 4 and 2 ahead
        (12, 8, 1, 8, 16),
        (2, 4, 4, 4, 4),  # two nodes with two stages each: a rank pair leaves either at both sides, or at one
    ],
)
def test_messages_that_leave_the_busiest_node(ranks, per_node, stages, first, inside):
    assert most_sent(ranks, per_node, stages, FIRST) == first
    assert most_sent(ranks, per_node, stages, INSIDE) == inside
    assert least_sent(ranks, per_node, stages) == min(first, most_sent(ranks, per_node, stages, LAST))


def test_stages_of_one_cluster_on_one_node_send_nothing():
    assert most_sent(2, 8, 4, Place(before=False, behind=False)) == 0
