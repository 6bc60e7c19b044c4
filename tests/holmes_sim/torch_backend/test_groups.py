"""Process groups of ranks whose stages have unlike tp: each is made when all its ranks have made equally many."""

from __future__ import annotations

from holmes_sim.torch_backend.groups import groups_of, numbered
from tests import builders as make


def test_a_rank_of_a_narrow_stage_has_a_group_for_each_rank_that_it_sends_to():
    plan = make.plan(make.fleet(make.cluster(devices=8)), 4, 2, stage_tp=(4, 1))
    assert [(group.kind, group.ranks) for group in groups_of(plan, 4)] == [("pp", (rank, 4)) for rank in range(4)]
    assert [(group.kind, group.ranks) for group in groups_of(plan, 2)] == [("tp", (0, 1, 2, 3)), ("pp", (2, 4))]


def test_ranks_agree_on_the_number_of_groups_before_each():
    plan = make.plan(make.fleet(make.cluster(devices=8)), 2, 2, 2, stage_tp=(2, 1), zero_stage=0)
    of_rank = [dict(numbered(plan, rank)) for rank in range(6)]
    assert {group.ranks: number for group, number in of_rank[4].items()} == {(0, 4): 1, (1, 4): 2, (4, 5): 3}
    assert {group.ranks: number for group, number in of_rank[0].items()} == {(0, 1): 0, (0, 4): 1, (0, 2): 2}
    for found in of_rank:
        assert list(found.values()) == sorted(set(found.values()))
        assert all(other.get(group, number) == number for group, number in found.items() for other in of_rank)


def test_with_one_degree_no_rank_makes_a_group_for_itself():
    plan = make.plan(make.fleet(make.cluster(devices=8)), 2, 2, 2, shape={"tied_embeddings": True})
    for rank in range(8):
        assert [number for _, number in numbered(plan, rank)] == list(range(len(list(groups_of(plan, rank)))))
