"""The state of a search, in numbers and in words."""

from __future__ import annotations

import pytest

from planner.progress import Progress


def test_without_a_plan_there_is_no_gap():
    state = Progress("estimating", None, 2.0)
    assert state.gap is None
    assert str(state) == "estimating, no plan yet"


@pytest.mark.parametrize(("bound", "gap", "shown"), [(0.0, 1.0, "0"), (3.0, 0.25, "3"), (4.0, 0.0, "4"), (9.0, 0.0, "4")])
def test_a_bound_above_the_best_step_is_the_best_step(bound, gap, shown):
    state = Progress("12 layouts settled", 4.0, bound)
    assert state.gap == gap
    assert str(state) == f"12 layouts settled, best step 4 s, bound {shown} s, gap {gap:.1%}"
