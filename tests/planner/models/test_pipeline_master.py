"""The master programme of unlike pipelines against every choice, and by hand."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.models.pipeline_master import Choice, most_samples, quick_bound, samples_bound
from planner.time_limit import TimeLimit

UNLIMITED = TimeLimit(math.inf)


def test_by_hand():
    """Two nodes and one: a pair of nodes with 5 samples is worth more than a node with 2 twice, unless replicas are few."""
    choices = [Choice((1, 0), 1, 2.0), Choice((2, 0), 3, 5.0), Choice((0, 1), 1, 1.0)]
    assert most_samples(choices, (2, 1), 4, UNLIMITED) == (0, 1, 1)
    assert most_samples(choices, (2, 1), 3, UNLIMITED) == (2, 0, 1)
    assert most_samples(choices, (2, 1), 2, UNLIMITED) == (2, 0, 0)
    assert samples_bound(choices, (2, 1), UNLIMITED) == pytest.approx(6.0)


def test_one_pipeline_alone_is_no_solution():
    """All nodes in one pipeline compute most, but two smaller ones are asked for."""
    whole = Choice((2, 1), 1, 9.0)
    assert most_samples([whole, Choice((1, 0), 1, 2.0), Choice((1, 1), 1, 3.0)], (2, 1), 4, UNLIMITED) == (0, 1, 1)
    assert most_samples([whole], (2, 1), 4, UNLIMITED) == (0,)


def test_a_quick_bound_by_hand():
    """Prices of 2.5 and 1 for a node; a choice across both clusters computes twice what its nodes cost."""
    choices = [Choice((1, 0), 1, 2.0), Choice((2, 0), 3, 5.0), Choice((0, 1), 1, 1.0)]
    assert quick_bound(choices, (2, 1)) == 6.0
    assert quick_bound([*choices, Choice((1, 1), 1, 7.0)], (2, 1)) == 12.0
    assert quick_bound([Choice((1, 1), 1, 7.0)], (2, 1)) == math.inf
    assert quick_bound([], (2, 1)) == 0.0


@given(
    st.lists(
        st.builds(Choice, st.tuples(st.integers(0, 2), st.integers(1, 2)), st.integers(1, 3), st.integers(1, 9).map(float)),
        min_size=1,
        max_size=4,
    ),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.integers(1, 6),
)
def test_no_choice_has_more_samples(choices, nodes, replicas):
    def total(copies, values):
        return sum(number * value for number, value in zip(copies, values, strict=True))

    def fits(copies):
        taken = [total(copies, [choice.nodes[index] for choice in choices]) for index in range(2)]
        return all(map(int.__le__, taken, nodes)) and total(copies, [choice.replicas for choice in choices]) <= replicas

    samples = [choice.samples for choice in choices]
    found = most_samples(choices, nodes, replicas, UNLIMITED)
    every = (copies for copies in itertools.product(range(4), repeat=len(choices)) if fits(copies) and sum(copies) > 1)
    assert fits(found) and sum(found) != 1
    assert total(found, samples) == pytest.approx(max((total(copies, samples) for copies in every), default=0.0))
    assert samples_bound(choices, nodes, UNLIMITED) >= total(found, samples) * (1 - 1e-9)
    assert quick_bound(choices, nodes) >= samples_bound(choices, nodes, UNLIMITED) * (1 - 1e-9)
