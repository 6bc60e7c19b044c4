"""Slots in a line: how stages are cut from it, who stands beside whom, and how layers are levelled."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.space.device_slots import borders, cut, devices, minmax_layers, replica_groups, ring, thinned
from tests import builders as make


@pytest.fixture
def clusters():
    """Two nodes of two devices, then one of four."""
    return make.cluster("a", 2, 2), make.cluster("b", 1, 4)


def stood(stands) -> list[list[tuple[str, int, int]]]:
    return [[(run.cluster.name, run.first, run.count) for run in stand] for stand in stands]


def named(pairs) -> list[tuple[str, str]]:
    return [(str(a), str(b)) for a, b in pairs]


@pytest.mark.parametrize(
    ("tp", "width", "expected"),
    [
        (1, 4, [[("a", 0, 4)], [("b", 0, 4)]]),
        (1, 3, [[("a", 0, 3)], [("a", 3, 1), ("b", 0, 2)]]),  # two slots are left over
        (2, 2, [[("a", 0, 2)], [("b", 0, 2)]]),
        (2, 4, [[("a", 0, 2), ("b", 0, 2)]]),
        (1, 9, []),
    ],
)
def test_a_stage_takes_the_next_slots_of_the_line(clusters, tp, width, expected):
    assert stood(cut(clusters, tp, width)) == expected


def test_devices_follow_the_line_slot_by_slot(clusters):
    assert [str(device) for device in devices(cut(clusters, 2, 3), 2)] == [
        "a/node0/dev0", "a/node0/dev1", "a/node1/dev0", "a/node1/dev1", "b/node0/dev0", "b/node0/dev1",
    ]  # fmt: skip


def test_strips_are_replicas_on_the_same_clusters_at_every_stage(clusters):
    found = replica_groups(cut(clusters, 1, 3))
    assert stood(found) == [[("a", 0, 1), ("a", 3, 1)], [("a", 1, 2), ("b", 0, 2)]]


def test_a_border_has_one_pair_of_each_kind(clusters):
    first, second = cut(clusters, 1, 3)
    assert named(borders(first, second, 1)) == [("a/node0/dev0", "a/node1/dev1"), ("a/node0/dev1", "b/node0/dev0")]
    first, second = cut(clusters[:1], 1, 1)[:2]
    assert named(borders(first, second, 1)) == [("a/node0/dev0", "a/node0/dev1")]


def test_a_ring_has_neighbours_in_a_node_between_nodes_and_between_clusters(clusters):
    assert named(ring(cut(clusters, 1, 6)[0], 1)) == [
        ("a/node0/dev0", "a/node0/dev1"), ("a/node0/dev1", "a/node1/dev0"),
        ("b/node0/dev0", "b/node0/dev1"),
        ("a/node1/dev1", "b/node0/dev0"), ("b/node0/dev1", "a/node0/dev0"),
    ]  # fmt: skip
    assert ring(cut(clusters, 1, 1)[0], 1) == ()


@pytest.mark.parametrize(
    ("seconds", "most", "layers", "expected"),
    [
        ([(0, 1), (0, 1)], [9, 9], 6, (3, 3)),
        ([(0, 1), (0, 2)], [9, 9], 6, (4, 2)),
        ([(2, 1), (0, 1), (2, 1)], [9, 9, 9], 8, (2, 4, 2)),  # embedding and head weigh two layers each
        ([(0, 1), (0, 2)], [2, 9], 6, (2, 4)),  # memory holds two
        ([(0, 1), (0, 1)], [9, 9], 5, (2, 3)),  # of equals the last
        ([(0, 1), (0, 1)], [2, 2], 5, None),
        ([(0, 1), (0, 1)], [9, 0], 5, None),
        ([(0, 1), (0, 1)], [9, 9], 1, None),
    ],
)
def test_layers_are_levelled(seconds, most, layers, expected):
    assert minmax_layers(seconds, most, layers, 1) == expected


stages = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5), st.integers(0, 5)), min_size=1, max_size=4)


@given(stages, st.integers(1, 12))
def test_no_other_split_has_a_faster_slowest_stage(stages, layers):
    """Against every split there is."""
    seconds, most = [(s, c) for s, c, _ in stages], [limit for _, _, limit in stages]

    def slowest(split) -> int:
        return max(s + k * c for k, (s, c) in zip(split, seconds, strict=True))

    every = [s for s in itertools.product(*(range(1, limit + 1) for limit in most)) if sum(s) == layers]
    found = minmax_layers(seconds, most, layers, 1)
    assert (found is None) == (not every)
    if found is not None:
        assert found in every
        assert slowest(found) == min(map(slowest, every))


@pytest.mark.parametrize(
    ("candidates", "devices", "kept"),
    [(100, 1000, 100), (30, 100_000, 30), (31, 100_000, 16), (1000, 100_000, 30), (3, 10**9, 1)],
)
def test_candidates_are_thinned_by_counted_work(candidates, devices, kept):
    """Devices of all candidates together: at most three million, but one candidate at least."""
    assert len(thinned(range(candidates), devices)) == kept
