"""Improvements of a search for programs."""

from __future__ import annotations

import pytest

from holmes_sim.improvements import Improvements, facts
from planner.progress import Progress


def test_a_line_for_a_shorter_step_or_a_smaller_gap_and_no_other(monkeypatch):
    monkeypatch.setattr("holmes_sim.improvements.time.monotonic", lambda: 107.5)
    written: list[dict[str, object]] = []
    improvements = Improvements(written.append, 100.0)
    states = [
        Progress("searching", None, 1.0),
        Progress("drafting", 8.0, 4.0),
        Progress("bounding", 8.0, 4.0),  # as before
        Progress("bounding", 8.0, 4.001),  # the gap is smaller by 0.000125
        Progress("bounding", 8.0, 5.0),
        Progress("simulating", 7.999999, 5.0),
        Progress("ending", 7.999999, 9.0),
    ]
    for state in states:
        improvements(state)
    assert [(line["activity"], line["step_s"], line["lower_bound_s"]) for line in written] == [
        ("drafting", 8.0, 4.0), ("bounding", 8.0, 5.0), ("simulating", 7.999999, 5.0), ("ending", 7.999999, 7.999999)
    ]  # fmt: skip
    assert [line["gap"] for line in written] == [0.5, 0.375, pytest.approx(0.375, abs=1e-6), 0.0]
    assert all(line["seconds"] == 7.5 for line in written)


def test_a_state_without_a_plan_has_no_numbers():
    found = facts(Progress("searching", None, 1.0), 2.0)
    numbers = {"seconds": 2.0, "activity": "searching", "step_s": None, "lower_bound_s": None, "gap": None}
    assert found == {"format": "holmes-sim/improvement/1"} | numbers
