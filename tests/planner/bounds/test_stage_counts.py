"""Numbers of stages for which something holds that more stages never spoil."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from planner.bounds.stage_counts import holding

SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=4)


@given(SIZES, st.lists(st.tuples(*[st.integers(0, 6)] * 4), max_size=4))
def test_the_boxes_give_what_testing_all_numbers_gives(most, corners):
    """What holds from some of a few corners on, in ascending order."""

    def holds(counts):
        return any(all(a >= b for a, b in zip(counts, corner, strict=False)) for corner in corners)

    assert holding(most, holds) == [some for some in product(*(range(1, one + 1) for one in most)) if holds(some)]


def test_few_numbers_are_tested_where_little_holds():
    """12 layers on stages of up to 2, 1 and 3: of 8 x 8 x 8 numbers, all with 1 or 2 stages of the last class fail at once."""
    tested = []

    def holds(counts):
        tested.append(counts)
        return 2 * counts[0] + counts[1] + 3 * counts[2] >= 46

    assert holding((8, 8, 8), holds) == [(7, 8, 8), (8, 6, 8), (8, 7, 8), (8, 8, 8)]
    assert len(tested) < 20


def test_no_stage_of_a_class_is_none_of_all():
    assert holding((2, 0), lambda counts: True) == []
    assert holding((2, 1), lambda counts: counts[0] > 1) == [(2, 1)]
