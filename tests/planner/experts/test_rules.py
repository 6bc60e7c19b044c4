"""Rules: what each does by hand, and that all fill every slot with different experts."""

from __future__ import annotations

import pytest

from planner.experts import rules
from planner.experts.problem import cost
from tests.planner.experts.problems import drawn, loads, problem

RULES = (rules.contiguous, rules.round_robin, rules.balanced, rules.per_node)
EVEN = [[1, 1, 1, 1, 1, 1, 1, 1]] * 2


def test_without_replicas_by_hand() -> None:
    given = problem(EVEN, slots=2)
    assert rules.contiguous(given).ranks == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert rules.round_robin(given).ranks == ((0, 4), (1, 5), (2, 6), (3, 7))


def test_replicas_of_unaware_rules_repeat_the_experts_in_order() -> None:
    given = problem([[1, 1, 1, 1]] * 2, slots=2, replicas=4)
    assert rules.contiguous(given).ranks == ((0, 1), (2, 3), (0, 1), (2, 3))
    assert rules.round_robin(given).ranks == ((0, 3), (0, 1), (1, 2), (2, 3))


def test_balanced_puts_the_hottest_with_the_coldest() -> None:
    given = problem([[8, 7, 2, 1]] * 2, slots=2)
    assert rules.balanced(given).ranks == ((0, 3), (1, 2))


def test_one_hot_expert_with_a_replica() -> None:
    """Expert 0 has 6 of 12 tokens; four ranks have 3 each on average. Alone it makes 2.0 of the mean; two copies 1.0 each."""
    tokens = [[6, 1, 1, 1, 1, 1, 1]] * 2
    given = problem(tokens, slots=2, replicas=1, compute=1.0)
    assert rules.replicated(given) == [2, 1, 1, 1, 1, 1, 1]
    assert cost(given, rules.balanced(given)).busiest == pytest.approx(4 / 3), "3 of one copy and 1 of a cold expert, over 3"
    assert max(loads(given, rules.balanced(given))) == pytest.approx(4 / 3)
    alone = problem([[*tokens[0], 0]] * 2, slots=2, compute=1.0)
    assert cost(alone, rules.balanced(alone)).busiest == pytest.approx(2.0)


def test_per_node_keeps_experts_where_their_tokens_come_from() -> None:
    given = problem([[5, 1, 1, 4], [1, 5, 4, 1]], slots=1)
    assert [set(sum(rules.per_node(given).ranks[first : first + 2], ())) for first in (0, 2)] == [{0, 3}, {1, 2}]


@pytest.mark.parametrize("rule", RULES)
def test_every_slot_is_filled_with_different_experts(rule: object) -> None:
    for seed in range(12):
        for replicas in (False, True):
            given = drawn(seed, replicas)
            ranks = rule(given).ranks  # type: ignore[operator]
            assert all(len(set(held)) == len(held) == given.slots for held in ranks)
            assert {expert for held in ranks for expert in held} == set(range(given.experts))
