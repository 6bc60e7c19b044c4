"""Aggregations: how many wrong islands they withstand, their passes over memory, and their noise."""

from __future__ import annotations

import numpy as np
import pytest

from sim import aggregation
from sim.aggregation import flag
from sim.errors import OptionError


@pytest.mark.parametrize(
    ("name", "islands", "tolerated", "passes"),
    [
        ("mean", 8, 0, 0.0),
        ("median", 2, 0, 5.0),
        ("median", 8, 3, 49.0),
        ("krum", 3, 0, 8.0),
        ("krum", 8, 2, 58.0),
        ("multi-krum", 3, 0, 8.0),  # the mean of one
        ("multi-krum", 8, 2, 61.0),  # of four
        ("flag", 4, 0, 25.0),
        ("flag", 15, 3, 256.0),
    ],
)
def test_tolerated_islands_and_passes(name, islands, tolerated, passes):
    found = aggregation.get(name)
    assert (found.tolerated(islands), found.passes(islands)) == (tolerated, passes)


@pytest.mark.parametrize(("name", "needed"), [("mean", None), ("median", 3), ("krum", 5), ("multi-krum", 5), ("flag", 5)])
def test_the_least_number_of_islands(name, needed):
    assert aggregation.needed(name) == needed
    if needed:
        assert (aggregation.get(name).tolerated(needed - 1), aggregation.get(name).tolerated(needed)) == (0, 1)


def test_values_of_all_islands_are_kept():
    assert [aggregation.get(name).kept(7) for name in aggregation.names()] == [7.0, 7.0, 0.0, 7.0, 7.0]


def test_noise_of_means_of_fewer_islands():
    assert (aggregation.get("mean").efficiency(9), aggregation.get("krum").efficiency(8)) == (1.0, 0.125)
    assert aggregation.get("multi-krum").efficiency(8) == 0.5
    assert aggregation.get("flag").efficiency(8) is None


@pytest.mark.parametrize("islands", [2, 3, 4, 5, 8, 10])
def test_noise_of_the_median_is_that_of_drawn_normal_values(islands):
    values = np.random.default_rng(0).standard_normal((200_000, islands))
    drawn = values.mean(1).var() / np.median(values, axis=1).var()
    assert aggregation.get("median").efficiency(islands) == pytest.approx(drawn, rel=0.01)


def test_noise_of_the_median_of_many_islands():
    assert aggregation.get("median").efficiency(11) == pytest.approx(2 / np.pi)


def test_the_subspace_of_flag_has_half_of_the_dimensions():
    """As in the experiments of its code: 8 of 15, 16 of 30 workers."""
    assert [flag.rank(islands) for islands in (2, 4, 15, 30)] == [2, 3, 8, 16]


def test_an_unknown_one_is_refused():
    with pytest.raises(OptionError, match="aggregation 'mode' is unknown; known: flag, krum, mean, median, multi-krum"):
        aggregation.get("mode")
