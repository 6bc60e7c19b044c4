"""Seconds of layers that stages share out."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.bounds.placed_deadline import DeadlineOf, alike_or_all, least_from, least_sums

STAGES = st.lists(st.tuples(st.floats(0.1, 9.0), st.integers(1, 4)), min_size=1, max_size=4)


@given(STAGES)
def test_layers_beyond_the_first_are_on_the_fastest_stages_with_room(stages):
    each, most = zip(*stages, strict=True)
    every: dict[int, float] = {}
    for split in itertools.product(*(range(1, number + 1) for number in most)):
        seconds = sum(k * one for k, one in zip(split, each, strict=True))
        every[sum(split)] = min(every.get(sum(split), seconds), seconds)
    assert least_sums(each, most) == pytest.approx([every[number] for number in range(len(each), sum(most) + 1)])


def test_layers_of_some_stages_take_their_least_seconds():
    each, test = (1.0, 4.0, 2.0, 9.0), DeadlineOf(1.0, 0.3, [1, 3, 2, 3])
    assert test.passed(each, 0, 0, 0) == 0.0
    assert test.passed(each, 0, 3, 5) == 1 + 4 + 2 + (2 + 4)
    assert test.passed(each, 1, 3, 4) == 4 + 2 + (2 + 4)
    assert test.passed(each, 0, 3, 1) == 1 + 4 + 2, "each has a layer"
    assert test.passed(each, 0, 3, 99) == 1 + 4 * 3 + 2 * 2, "no more than they may have"
    assert test.passed(alike_or_all([2.0, 2.0 + 1e-15, 2.0]), 0, 3, 5) == 10.0


def test_sizes_have_the_least_of_larger_ones():
    sizes = {1: (0.5, 3.0, 0.2), 2: (0.4, 1.0, 0.9), 3: (0.6, 2.0, 0.5)}
    assert least_from([], 1, 3, sizes.__getitem__) == (0.4, 1.0, 0.2)
