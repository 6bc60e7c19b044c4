"""The places of ranks in two sets, their experts and groups."""

from __future__ import annotations

from holmes_sim.torch_backend.disaggregated.set_rank import SetRank
from tests.two_rank_sets import stage


def test_ranks_of_two_groups():
    """Two attention ranks and two expert ranks in two groups; attention ranks keep two of eight experts of the second layer."""
    whole = stage(2, 2, groups=2, rounds=2, kept=(0, 2))
    places = [SetRank(whole, rank) for rank in range(4)]
    assert [(place.set_name, place.group, place.in_group) for place in places] == [
        ("attention", 0, 0),
        ("attention", 1, 0),
        ("experts", 0, 1),
        ("experts", 1, 1),
    ]
    assert [place.experts(2) for place in places] == [range(2), range(2), range(2, 8), range(2, 8)]
    assert [place.experts(1) for place in places] == [range(0), range(0), range(8), range(8)]
    found = [{group.kind: group.ranks for group in place.groups()} for place in places]
    assert found[1] == {"dispatch": (1, 3), "combine": (1, 3), "dp": (0, 1), "edp": (0, 1)}
    assert found[2] == {"dispatch": (0, 2), "combine": (0, 2), "edp": (2, 3)}


def test_experts_are_divided_among_the_ranks_of_a_group():
    """Two attention ranks keep two experts each of the second layer, and one expert rank has the other four."""
    whole = stage(2, 1, rounds=2, kept=(0, 4))
    assert [SetRank(whole, rank).experts(2) for rank in range(3)] == [range(2), range(2, 4), range(4, 8)]
    assert [group.kind for group in SetRank(whole, 0).groups()] == ["dispatch", "combine", "dp"]
    assert {group.nic for group in SetRank(whole, 0).groups()} == {"roce"}
