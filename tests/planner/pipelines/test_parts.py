"""Parts of a fleet: numbers of nodes of each cluster."""

from __future__ import annotations

from planner.pipelines.parts import parts, peak
from tests import builders as make
from tests.planner.builders import request
from tests.planner.pipelines.fleets import two_kinds


def test_all_numbers_of_nodes_but_none_and_all_of_them():
    """A node of each cluster has 2e12 FLOP/s; equal peaks are in the order of their nodes."""
    asked = two_kinds()
    assert parts(asked) == [(0, 1), (1, 0), (1, 1), (2, 0)]
    assert [peak(asked, part) for part in parts(asked)] == [2e12, 2e12, 4e12, 4e12]


def test_of_a_large_cluster_powers_of_two_and_all():
    assert [part[0] for part in parts(two_kinds((6, 1))) if part[1] == 0] == [1, 2, 4, 6]


def test_of_many_clusters_each_by_itself_and_whole_ones_together():
    """Four clusters of four nodes have 5 ** 4 numbers of nodes."""
    clusters = [make.cluster(name, 4, 1, (make.nic(),)) for name in "abcd"]
    found = parts(request(make.fleet(*clusters), make.model(4), 8))
    assert len(found) == 16 + 6 + 4
    assert [part for part in found if part[0] and not any(part[1:])] == [(1, 0, 0, 0), (2, 0, 0, 0), (3, 0, 0, 0), (4, 0, 0, 0)]
    assert {part for part in found if sum(map(bool, part)) == 3} == {(0, 4, 4, 4), (4, 0, 4, 4), (4, 4, 0, 4), (4, 4, 4, 0)}
    assert found == sorted(found, key=sum)


def test_of_many_clusters_only_few_together():
    """Nine of them: 9 by themselves, 36 pairs and 84 of three are 129; 126 of four would be 255, and 126 of five too many."""
    clusters = [make.cluster(name, 1, 1, (make.nic(),)) for name in "abcdefghi"]
    found = parts(request(make.fleet(*clusters), make.model(4), 8))
    assert [sum(sum(part) == size for part in found) for size in range(1, 7)] == [9, 36, 84, 126, 0, 0]


def test_no_parts_of_a_fleet_that_has_too_many():
    """Powers of two up to 2 ** 199 of each cluster: more numbers than `MOST_PARTS`."""
    assert parts(two_kinds((1 << 199, 1 << 199))) == []
