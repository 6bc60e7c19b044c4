"""The shortlist: the best of many by an exact cost, with the help of a rough one."""

from __future__ import annotations

import math

from planner.search.shortlist import best_of_each, shortlist
from planner.time_limit import TimeLimit


class Cost(float):
    @property
    def seconds(self) -> float:
        return float(self)


def test_the_shortlist_is_the_best_by_exact_cost_and_looks_no_further_than_it_must():
    looked = []

    def exact(item: int) -> list[Cost]:
        looked.append(item)
        return [] if item == 2 else [Cost(item + 3 * (item % 2))]  # never below the rough cost; 2 does not fit

    rough = [(float(item), item) for item in (6, 1, 2, 3, 5, 4, 7)]
    assert shortlist(rough, exact, 2, TimeLimit(math.inf)) == [4.0, 4.0]
    assert looked == [1, 2, 3, 4]


def test_after_the_time_limit_one_is_enough():
    assert shortlist([(2.0, 2), (1.0, 1)], lambda item: [Cost(9 - item)], 2, TimeLimit(0.0)) == [8.0]


def test_of_each_kind_only_the_best_few_are_taken():
    rough = [(5.0, "a5"), (1.0, "a1"), (4.0, "b4"), (2.0, "a2"), (3.0, "a3"), (6.0, "b6")]
    assert [item for _, item in best_of_each(rough, lambda item: item[0], 2)] == ["a1", "a2", "b4", "b6"]
