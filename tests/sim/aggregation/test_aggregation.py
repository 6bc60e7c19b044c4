"""Aggregations: how many wrong islands they withstand, and their passes over memory."""

from __future__ import annotations

import pytest

from sim import aggregation
from sim.errors import OptionError


@pytest.mark.parametrize(
    ("name", "islands", "tolerated", "passes"),
    [
        ("mean", 8, 0, 0.0),
        ("median", 2, 0, 5.0),
        ("median", 8, 3, 49.0),
        ("krum", 3, 0, 8.0),
        ("krum", 8, 2, 58.0),
    ],
)
def test_tolerated_islands_and_passes(name, islands, tolerated, passes):
    found = aggregation.get(name)
    assert (found.tolerated(islands), found.passes(islands)) == (tolerated, passes)


def test_an_unknown_one_is_refused():
    with pytest.raises(OptionError, match="aggregation 'mode' is unknown; known: krum, mean, median"):
        aggregation.get("mode")
