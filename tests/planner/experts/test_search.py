"""The search against brute force and by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from planner.experts import rules, search
from planner.experts.problem import ExpertProblem, cost
from planner.models.expert_programme import best_shares
from planner.time_limit import TimeLimit
from tests.more import after
from tests.planner.experts.problems import drawn, every, problem, with_pairs


def found(given: ExpertProblem, links: tuple[tuple[str, ...], ...] = ()) -> search.Found:
    return search.find((given,), (links,), TimeLimit(20.0))


@pytest.mark.parametrize("seed", after(6, [*range(1, 7), *range(8, 12), 0, 7]))
def test_against_brute_force(seed: int) -> None:
    given = drawn(seed, replicas=False)
    best = min(cost(given, placement).total for placement in every(given))
    result = found(given)
    assert result.total == pytest.approx(best, rel=search.PROVED)
    assert result.is_optimal
    assert result.bound <= best * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_with_replicas_against_brute_force(seed: int) -> None:
    """For each placement of copies the best shares are a linear programme."""
    given = drawn(seed, replicas=True)
    rows, result = search.rank_rows(given), found(given)
    placements = [placement for placement in every(given) if placement.ranks <= placement.ranks[::-1] or seed % 2]
    for placement in placements[:: max(1, len(placements) // 60)]:
        shares = best_shares(rows, list(placement.copies()), 1.0, TimeLimit(20.0))
        assert shares is not None
        other = cost(given, replace(placement, shares=shares)).total
        assert result.total <= other * (1 + search.PROVED)
        assert other <= cost(given, placement).total * (1 + 1e-6), "the best shares are no worse than equal ones"
    assert result.bound <= result.total
    assert result.is_optimal


@pytest.mark.parametrize("seed", after(3, [1, 2, 3, 0]))
def test_blocks_that_share_a_placement_against_brute_force(seed: int) -> None:
    """Two blocks with other tokens and links: the slower one counts."""
    one = drawn(seed, replicas=False)
    random = np.random.default_rng(seed + 50)
    tokens = random.random(one.tokens.shape)
    other = replace(one, tokens=tokens / tokens.sum(1, keepdims=True), dispatch=random.random(one.dispatch.shape))
    result = search.find((one, other), ((), ()), TimeLimit(20.0))
    best = min(max(cost(one, placement).total, cost(other, placement).total) for placement in every(one))
    assert result.total == pytest.approx(best, rel=search.PROVED)
    assert result.is_optimal
    assert result.placements[0].ranks == result.placements[1].ranks


@pytest.mark.parametrize("seed", range(4))
def test_pairs_against_brute_force(seed: int) -> None:
    given = with_pairs(seed)
    assert found(given).total == pytest.approx(min(cost(given, one).total for one in every(given)), rel=search.PROVED)


def test_islands_keep_their_experts() -> None:
    """Each of two nodes chooses its own half of the experts, in scrambled order: nothing need cross the link."""
    given = problem([[5, 0, 0, 3, 1, 0, 0, 1], [0, 2, 4, 0, 0, 3, 1, 0]], slots=2, compute=0.01)
    result = found(given)
    assert cost(given, rules.contiguous(given)).exchange > 0
    assert (result.costs[0].exchange, result.costs[0].between_clusters) == (0.0, 0.0)
    assert {frozenset(result.placements[0].ranks[0] + result.placements[0].ranks[1])} == {frozenset((0, 3, 4, 7))}


def test_a_replica_of_a_hot_expert() -> None:
    """Expert 0 has half of all tokens, twice the mean of a rank; the others a third of it each. Two ranks with a copy and a
    cold expert each have (2 + 2/3) / 2; without a replica its rank has 2 and a cold expert."""
    given = problem([[6, 1, 1, 1, 1, 1, 1]] * 2, slots=2, replicas=1, trunk=0.0, compute=1.0)
    result = found(given)
    assert (result.costs[0].busiest, result.is_optimal) == (pytest.approx(4 / 3), True)
    alone = found(problem([[6, 1, 1, 1, 1, 1, 1, 0]] * 2, slots=2, trunk=0.0, compute=1.0))
    assert (alone.costs[0].busiest, alone.is_optimal) == (pytest.approx(2.0), True)


def test_a_slow_device_gets_fewer_tokens() -> None:
    """Rank 1 takes three times as long: it gets the two coldest of four experts, 1/4 of the tokens, as long as rank 0."""
    result = found(problem([[4, 2, 1, 1]] * 2, slots=2, trunk=0.0, compute=(1.0, 3.0)))
    assert result.placements[0].ranks == ((0, 1), (2, 3))
    assert result.costs[0].experts == pytest.approx(1.5)


def test_pairs_that_are_chosen_together_land_on_one_node() -> None:
    """All tokens choose experts 0 and 2, or 1 and 3, once each: with both on one node a token crosses once, or not at all."""
    given = with_pairs(0)
    assert given.pairs is not None
    saved = np.where([pair in ((0, 2), (1, 3)) for pair in given.pairs.experts], 0.25, 0.0)
    given = problem([[1, 1, 1, 1]] * 2, 1, pairs=type(given.pairs)(given.pairs.experts, saved, given.pairs.domain))
    result = found(given)
    assert {frozenset(a + b) for a, b in (result.placements[0].ranks[:2], result.placements[0].ranks[2:])} == {
        frozenset((0, 2)),
        frozenset((1, 3)),
    }
    assert result.costs[0].dispatch == pytest.approx(0.5), (
        "two ranks; a quarter of each one's choices, half of the half, crosses"
    )


@pytest.mark.parametrize(("seed", "replicas"), [(seed, bool(seed % 2)) for seed in range(6)])
def test_never_worse_than_a_rule(seed: int, replicas: bool) -> None:
    given = drawn(seed + 100, replicas)
    result = found(given).total
    assert result <= min(cost(given, rule(given)).total for rule in search.RULES) * (1 + 1e-9)


@pytest.mark.parametrize("replicas", [0, 8])
def test_over_nodes(monkeypatch: pytest.MonkeyPatch, replicas: int) -> None:
    """Over nodes the bound stays below the optimum, the placement near it; here ranks differ only in the node."""
    random = np.random.default_rng(3)
    tokens = random.random((2, 8)) ** 2
    given = problem(tokens, slots=(8 + replicas) // 4, replicas=replicas, compute=0.3)
    exact = found(given)
    monkeypatch.setattr(search, "EXACT", 0)
    coarse = found(given, (("trunk", "a", "b"), ("trunk", "b", "a")))
    assert coarse.bound <= exact.total * (1 + 1e-6)
    assert exact.is_optimal
    assert coarse.total <= exact.total * 1.05
    assert sorted(map(len, coarse.placements[0].ranks)) == [given.slots] * 4


def test_more_pairs_than_a_programme_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs count all pairs; the bound of the programme is left out, since it leaves out what some pairs save."""
    given = with_pairs(2)
    best = min(cost(given, one).total for one in every(given))
    monkeypatch.setattr(search, "PAIRS", 1)
    result = found(given)
    assert result.bound <= best * (1 + 1e-9)
    assert result.total == cost(given, result.placements[0]).total >= best * (1 - 1e-9)


def test_a_bound_without_the_programme(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hottest expert has 2 of a mean of 1; ranks of 1 s and 3 s that take equally long compute 2 means in 1.5 s."""
    monkeypatch.setattr(search, "assign", lambda *_: None)
    assert found(problem([[1, 1], [1, 1]], slots=1, compute=(1.0, 3.0))).bound == pytest.approx(1.5)
    assert found(problem([[9, 1], [9, 1]], slots=1, compute=1.0)).bound == pytest.approx(1.8)


def test_links_of_one_node_are_averaged() -> None:
    """Two ports of a node in one direction become one row, at most the larger; a trunk stays."""
    links = (("port", "a", 0, 0, "out"), ("port", "a", 0, 1, "out"), ("trunk", "a", "b", "ethernet", "out"))
    given = problem([[1, 1, 1, 1]] * 2, slots=1)
    seconds = np.zeros((3, 2, 4))
    seconds[0, 0, 2:], seconds[1, 0, 2:], seconds[2, 0, 2:] = 1.0, 3.0, 5.0
    rows = search.node_rows(replace(given, dispatch=seconds, combine=seconds), links)
    assert rows.dispatch[:, 0, 1].tolist() == [2.0, 5.0]
    assert rows.slots == (2, 2)


def test_the_time_limit_leaves_a_placement_without_a_bound() -> None:
    given = drawn(1, replicas=False)
    result = search.find((given,), ((),), TimeLimit(0.0))
    assert result.total < math.inf
    assert 0.0 <= result.gap <= 1.0


def test_nothing_to_gain() -> None:
    result = found(problem([[1, 1], [1, 1]], slots=1, trunk=0.0))
    assert (result.total, result.gap, result.is_optimal) == (0.0, 0.0, True)
