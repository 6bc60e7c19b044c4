"""Places that have experts of a token, against enumeration: random choices, and choices from groups."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from sim.plan.reached_places import reached


def enumerated(places: int, experts: int, chosen: int, groups: int, chosen_groups: int) -> float:
    """The mean over all choices of groups, and of `chosen` / `chosen_groups` experts from each of them."""
    size, each = experts // groups, experts // places
    hit = []
    for some in combinations(range(groups), chosen_groups):
        own = [combinations(range(one * size, (one + 1) * size), chosen // chosen_groups) for one in some]
        hit += [len({expert // each for part in parts for expert in part}) for parts in product(*own)]
    return sum(hit) / len(hit)


@pytest.mark.parametrize("places", [1, 2, 4, 8, 16])
def test_places_with_whole_groups_and_with_parts_of_groups(places: int) -> None:
    """Four groups of four experts, of which a token takes two experts each of two groups; or all four of all groups."""
    assert reached(places, 16, 4, 4, 2) == pytest.approx(enumerated(places, 16, 4, 4, 2))
    assert reached(places, 16, 4) == pytest.approx(enumerated(places, 16, 4, 1, 1))


def test_a_token_of_deepseek_v3_reaches_four_nodes() -> None:
    """Eight groups on eight nodes, of which a token takes four; without the limit it would reach 5.3 nodes."""
    assert reached(8, 256, 8, 8, 4) == 4.0
    assert reached(8, 256, 8) == pytest.approx(5.2947, abs=1e-4)
    assert [reached(places, 256, 8, 8, 4) for places in (1, 2, 4)] == pytest.approx([1.0, 2 * 69 / 70, 4 * 55 / 70])


def test_more_groups_than_experts_of_a_token_are_not_all_hit() -> None:
    assert reached(8, 16, 2, 8, 4) == 2.0


def test_experts_that_do_not_divide_evenly_among_the_groups() -> None:
    """Three experts from two groups of four on four places of two: one group gives two experts, and the other one."""
    assert reached(4, 8, 3, 2, 2) == pytest.approx(2 * (1 - 1 / 6) + 2 * (1 - 2 / 4))


def test_places_that_do_not_match_the_groups_have_a_bound() -> None:
    """Three places and four groups: as without a limit, but not more than one group of theirs can touch."""
    assert reached(3, 12, 2, 4, 1) == pytest.approx(min(reached(3, 12, 2), 2.0))
    assert reached(3, 12, 6, 4, 2) == pytest.approx(reached(3, 12, 6))
    assert reached(3, 12, 8, 4, 1) == 2.0
