"""Prices of resources for which columns compute most: by hand, and the law of duality."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.models.column_prices import Taken, least_prices
from planner.time_limit import TimeLimit

UNLIMITED = TimeLimit(math.inf)


def test_one_resource_costs_what_its_best_column_computes():
    assert least_prices([Taken((2.0,), 6.0), Taken((1.0,), 2.0)], (10,), UNLIMITED) == pytest.approx((3.0,))


def test_two_resources_by_hand():
    """Four of the first and two of the second: two columns of both together compute 10, and the rest of the first 2."""
    columns = [Taken((1.0, 1.0), 5.0), Taken((1.0, 0.0), 1.0)]
    assert least_prices(columns, (4, 2), UNLIMITED) == pytest.approx((1.0, 4.0))


@given(
    st.lists(
        st.builds(Taken, st.tuples(st.integers(1, 3).map(float), st.integers(0, 3).map(float)), st.integers(1, 9).map(float)),
        min_size=1, max_size=5,
    ),
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
)  # fmt: skip
def test_no_column_computes_more_than_it_costs(columns, available):
    """And no column by itself, as often as there are resources, computes more than all of them cost."""
    prices = least_prices(columns, available, UNLIMITED)
    assert prices is not None
    for column in columns:
        assert sum(map(math.prod, zip(prices, column.resources, strict=True))) >= column.samples * (1 - 1e-6)
        times = min(have / taken for have, taken in zip(available, column.resources, strict=True) if taken)
        assert times * column.samples <= sum(map(math.prod, zip(prices, available, strict=True))) * (1 + 1e-6)
