"""A clock that counts: a search under a time limit ends after the same number of looks at it on every machine."""

from __future__ import annotations

import itertools

import pytest

TICK = 0.01
"""Seconds that pass between two looks at the clock."""


def count_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the planner a clock on which `TICK` seconds pass with every look at it."""
    looks = itertools.count()
    monkeypatch.setattr("planner.time_limit.time.monotonic", lambda: next(looks) * TICK)
