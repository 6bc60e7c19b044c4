"""Division of a batch: the longest island is as short as brute force finds."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.islands.batches import divided, unit


@pytest.mark.parametrize(("batch", "size"), [(1536, 32), (1024, 32), (768, 16), (33, 1), (64, 2), (63, 1), (1, 1)])
def test_units(batch, size):
    assert unit(batch) == size


def test_equal_islands_have_equal_batches():
    assert divided(1536, (1.0, 1.0)) == (768, 768)
    assert divided(1536, (3.0, 1.0)) == (1152, 384)
    assert divided(100, (2.0, 1.0), 1) == (67, 33)


@given(st.integers(4, 14), st.lists(st.floats(0.1, 10.0), min_size=2, max_size=3))
def test_the_longest_time_is_least(batch, speeds):
    found = divided(batch, tuple(speeds))
    assert sum(found) == batch
    ways = (way for way in itertools.product(range(1, batch), repeat=len(speeds)) if sum(way) == batch)
    least = min(max(own / speed for own, speed in zip(way, speeds, strict=True)) for way in ways)
    assert max(own / speed for own, speed in zip(found, speeds, strict=True)) == pytest.approx(least)


def test_a_batch_smaller_than_the_islands():
    with pytest.raises(ValueError, match="a batch of 2 cannot be divided among 3 islands"):
        divided(2, (1.0, 1.0, 1.0))
