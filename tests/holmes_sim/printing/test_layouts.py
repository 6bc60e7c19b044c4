"""Numbers of nodes as text."""

from __future__ import annotations

import pytest

from holmes_sim.printing.layouts import RANGES, node_ranges


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        ([3], "3"),
        ([0, 1, 2], "0-2"),
        ([2, 0, 2], "0, 2"),
        ([0, 1, 4, 6, 7], "0-1, 4, 6-7"),
        ([0, 2, 4, 6], "0, 2, 4, 6"),
        ([0, 2, 4, 6, 8, 9], "0, 2, 4, ..., 8-9"),
    ],
)
def test_only_consecutive_nodes_are_a_range(nodes, text):
    assert node_ranges(nodes) == text
    assert text.count(",") <= RANGES
