"""Allowed values hold what they list, or all of a range, and say so."""

from __future__ import annotations

import pytest

from sim.plan.allowed import Allowed


@pytest.mark.parametrize(
    ("allowed", "inside", "outside", "text"),
    [
        (Allowed((4, 8)), (4, 8), (1, 6, 16), "4 or 8"),
        (Allowed(("none", "full")), ("none",), ("selective",), "none or full"),
        (Allowed(least=2), (2, 3, 64), (0, 1), "at least 2"),
        (Allowed(most=4), (1, 4), (5, 8), "at most 4"),
        (Allowed(least=2, most=4), (2, 3, 4), (1, 5), "2 to 4"),
        (Allowed(least=0, most=0), (0,), (1,), "0"),
    ],
)
def test_values(allowed, inside, outside, text):
    assert all(allowed.holds(value) for value in inside)
    assert not any(allowed.holds(value) for value in outside)
    assert allowed.holds(None)
    assert str(allowed) == text
