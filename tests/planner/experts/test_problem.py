"""The cost of a placement: by hand, and against sums over single tokens."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from planner.experts.problem import ExpertPlacement, Pairs, cost
from tests.planner.experts.problems import drawn, every, problem


def test_two_islands_that_prefer_their_own_experts() -> None:
    """Node a chooses experts 0 and 1, node b experts 2 and 3. At home nothing crosses; the other way round all does."""
    given = problem([[3, 1, 0, 0], [0, 0, 1, 1]], slots=1, compute=10.0)
    home, away = (cost(given, ExpertPlacement(ranks)) for ranks in (((0,), (1,), (2,), (3,)), ((2,), (3,), (0,), (1,))))
    assert (home.exchange, home.between_clusters, home.out_of_node) == (0.0, 0.0, 0.0)
    assert (away.dispatch, away.combine) == (2.0, 2.0), "two ranks send all their choices over the link, each way"
    assert (away.between_clusters, away.out_of_node) == (200.0, 200.0)
    assert home.busiest == 1.5, "of four ranks' choices, expert 0 has 3/4 of two: 1.5, the mean is 1"
    assert home.experts == 15.0
    assert home.total == 15.0


def test_copies_take_equal_shares_unless_shares_are_given() -> None:
    """Expert 0 has half of all tokens and two copies, one a node."""
    given = problem([[2, 1, 1], [2, 1, 1]], slots=2, replicas=1, compute=1.0)
    ranks = ((0, 1), (0, 2))
    even = cost(given, ExpertPlacement(ranks))
    assert even.busiest == 1.0
    assert even.dispatch == pytest.approx(0.5), "half of expert 0 and a quarter cross: 0.25 + 0.25"
    near = cost(given, ExpertPlacement(ranks, np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 1.0]])))
    assert near.dispatch == pytest.approx(0.25), "each node computes its own tokens of expert 0"


def test_a_slow_device_counts_by_its_own_seconds() -> None:
    """Rank 1 is twice as slow and has a quarter of the tokens: 0.5 x 2 s; rank 0 has 1.5 x 1 s, which is 0.75 of the slow
    one."""
    found = cost(problem([[3, 1], [3, 1]], slots=1, compute=(1.0, 2.0)), ExpertPlacement(((0,), (1,))))
    assert (found.experts, found.busiest, found.longest) == (1.5, 1.5, 0.75)


@pytest.mark.parametrize("chosen", [2, 3])
def test_pairs_count_at_least_what_is_sent(chosen: int) -> None:
    """Tokens, alike from both nodes, go once to each node: counted exactly with two experts a token, as at least that with
    three."""
    random = np.random.default_rng(chosen)
    tokens = [tuple(random.choice(4, chosen, replace=False).tolist()) for _ in range(60)]
    counts = [sum(expert in token for token in tokens) for expert in range(4)]
    pairs = tuple(itertools.combinations(range(4), 2))
    saved = np.array([sum(set(pair) <= set(token) for token in tokens) * 2 / chosen / len(tokens) / chosen for pair in pairs])
    given = problem([counts, counts], slots=1, pairs=Pairs(pairs, saved, (0, 0, 1, 1)))
    for placement in every(given):
        sides = [set(sum(placement.ranks[first : first + 2], ())) for first in (0, 2)]
        sent = max(sum(bool(there & set(token)) for token in tokens) for there in sides) / len(tokens) / chosen
        found = cost(given, placement).dispatch / 2  # two ranks send
        assert found == pytest.approx(sent) if chosen == 2 else found >= sent - 1e-12


def test_costs_are_sums_over_tokens() -> None:
    """Against loops over sources, experts and ranks."""
    for seed in range(6):
        given = drawn(seed, replicas=False)
        for placement in itertools.islice(every(given), 20):
            home = dict(placement.copies())
            rows = (given.dispatch, given.combine)
            busiest = [
                max(
                    sum(given.tokens[s, e] * seconds[s, home[e]] for s in range(2) for e in range(given.experts))
                    for seconds in links
                )
                for links in rows
            ]
            assert cost(given, placement).exchange == pytest.approx(given.passes * sum(busiest))
