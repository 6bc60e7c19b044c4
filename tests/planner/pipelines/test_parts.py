"""Parts of a fleet: numbers of nodes of each cluster."""

from __future__ import annotations

from planner.pipelines.parts import parts, peak
from tests.planner.pipelines.fleets import two_kinds


def test_all_numbers_of_nodes_but_none_and_all_of_them():
    """A node of each cluster has 2e12 FLOP/s; equal peaks are in the order of their nodes."""
    asked = two_kinds()
    assert parts(asked) == [(0, 1), (1, 0), (1, 1), (2, 0)]
    assert [peak(asked, part) for part in parts(asked)] == [2e12, 2e12, 4e12, 4e12]


def test_of_a_large_cluster_powers_of_two_and_all():
    assert [part[0] for part in parts(two_kinds((6, 1))) if part[1] == 0] == [1, 2, 4, 6]


def test_no_parts_of_a_fleet_that_has_too_many():
    """Powers of two up to 2 ** 199, and none: more numbers than `MOST_PARTS`."""
    assert parts(two_kinds((1 << 199, 1))) == []
