"""Bounds of ranks with two stages: below the evaluator on drawn pipelines, and the splits that they leave."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.bounds.two_stage_ranks import LEAST, Ints, TwoStageRanks, halves, sequences
from sim.analytic.candidates import Floats
from sim.analytic.equal_replicas import replica_classes
from sim.analytic.evaluator import Table
from sim.analytic.plan_costs import PlanCosts
from sim.analytic.recurrence import steps
from tests.sim.context_and_experts import nodes

EXPERTS = {"experts": 8, "experts_per_token": 2, "tied_embeddings": False}


def table_of(pp: int, dp: int, ep: int, microbatches: int, bandwidth: float, **config: object) -> Table:
    plan = nodes(
        bandwidth=bandwidth, pp=pp, dp=dp, ep=ep, vpp=2, schedule="dualpipev", microbatches=microbatches, shape=EXPERTS,
        layers=(2,) * (2 * pp), **config,
    )  # fmt: skip
    costs, (replicas, *_) = PlanCosts(plan), replica_classes(plan)
    messages = np.zeros((pp, pp))
    for a, b in itertools.pairwise(range(pp)):
        messages[a, b], messages[b, a] = costs.message(a, b, replicas), costs.message(b, a, replicas)
    return Table([costs.at(rank, replicas, (rank,)) for rank in range(pp)], messages)


def evaluated(table: Table, splits: Ints) -> Floats:
    first, second = halves(splits)
    ranks = np.tile(np.arange(splits.shape[1]), (len(splits), 1))
    return steps(table.candidates(ranks, np.concatenate([first, second[:, ::-1]], axis=1)))


@given(data=st.data())
def test_no_split_ends_before_its_bound(data: st.DataObject) -> None:
    """Every split that the evaluator ends within some seconds is among those that are left for these seconds."""
    pp, dp = data.draw(st.integers(2, 4)), data.draw(st.sampled_from([1, 2, 4]))
    ep = data.draw(st.sampled_from([degree for degree in (1, 2, 4) if degree <= dp]))
    m, overlap = 2 * pp + data.draw(st.integers(0, 9)), data.draw(st.booleans())
    table = table_of(
        pp, dp, ep, m, data.draw(st.sampled_from([1e8, 1e9, 1e11])), overlap_grad_reduce=overlap, overlap_param_gather=overlap
    )
    total = 4 * pp
    ranks, allowed = TwoStageRanks(table, pp, total, m), np.ones((pp, total + 1), dtype=bool)
    every = np.array([one for one in itertools.product(range(LEAST, total), repeat=pp) if sum(one) == total])
    seconds = evaluated(table, every)
    assert ranks.least_seconds(0.0, 10 * float(seconds.max()), allowed) <= seconds.min()
    for limit in (float(seconds.min()), float(np.median(seconds)), float(seconds.max())):
        left = ranks.splits(limit, allowed, 10**6)
        assert left is not None
        assert {tuple(one) for one in every[seconds <= limit].tolist()} <= {tuple(one) for one in left.tolist()}


def test_bounds_are_near_the_fastest_split() -> None:
    """Three equal ranks of twelve layers and many microbatches: most splits are left out, and the bound is 2 % below."""
    table = table_of(3, 2, 2, 40, 1e11, overlap_grad_reduce=False, overlap_param_gather=False)
    ranks, allowed = TwoStageRanks(table, 3, 12, 40), np.ones((3, 13), dtype=bool)
    every = np.array([one for one in itertools.product(range(2, 9), repeat=3) if sum(one) == 12])
    seconds = evaluated(table, every)
    least = ranks.least_seconds(0.0, 1.0, allowed)
    assert 0.98 * seconds.min() < least <= seconds.min()
    left = ranks.splits(float(seconds.min()) * 1.001, allowed, 10**6)
    assert left is not None and len(left) < len(every) / 4
    assert ranks.splits(float(seconds.max()), allowed, 3) is None


def test_ranks_without_room_leave_no_split() -> None:
    table = table_of(2, 1, 1, 4, 1e9)
    ranks, allowed = TwoStageRanks(table, 2, 8, 4), np.zeros((2, 9), dtype=bool)
    allowed[:, 2:4] = True
    assert ranks.most_layers(1e3, allowed) is None
    assert ranks.splits(1e3, allowed, 10).tolist() == []
    allowed[0, 5] = True
    assert ranks.splits(1e3, allowed, 10).tolist() == [[5, 3]]


@pytest.mark.parametrize(
    ("rooms", "ranks", "found"),
    [
        ([("a", 3)], 3, {"aaa"}),
        ([("a", 2), ("b", 1)], 3, {"aab", "baa"}),
        ([("a", 2), ("b", 2)], 2, {"aa", "bb", "ab", "ba"}),
        ([("a", 1), ("b", 1), ("c", 1)], 3, {"abc", "acb", "bac", "bca", "cab", "cba"}),
        ([("a", 1)], 2, set()),
    ],
)
def test_sequences_have_each_clusters_ranks_side_by_side(rooms: list[tuple[str, int]], ranks: int, found: set[str]) -> None:
    listed = ["".join(one) for one in sequences(rooms, ranks)]
    assert (set(listed), len(listed)) == (found, len(found))


def test_halves_of_an_odd_rank_are_longer_behind() -> None:
    assert [one.tolist() for one in halves(np.array([2, 5, 8]))] == [[1, 2, 4], [1, 3, 4]]
