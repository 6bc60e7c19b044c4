"""Limits and tolerances of a search."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields

import pytest

from planner.search.budgets import Budgets

FRACTIONS = (
    "estimate_error", "target_gap", "optimal_gap", "bound_step", "bound_slack", "contention", "mixed_share", "wide_gap",
    "placement_delay", "crowded_delay",
    "crowded_near", "proof_share", "unlike_gain", "unlike_near", "unlike_share", "short_doubt", "short_first",
    "first_doubt",
)  # fmt: skip


@pytest.mark.parametrize("name", [field.name for field in fields(Budgets)])
def test_a_limit_is_positive_and_an_integer_counts(name):
    value = getattr(Budgets(), name)
    assert value > 0
    assert isinstance(value, int) != (name in FRACTIONS or name.endswith("_s"))
    assert name not in FRACTIONS or value < 1


def test_budgets_do_not_change():
    with pytest.raises(FrozenInstanceError):
        Budgets().first_shapes = 1


def test_a_plan_within_the_target_gap_is_not_optimal_by_itself():
    """The search looks for plans faster by `target_gap`; a gap that small is not yet called optimal."""
    assert Budgets().optimal_gap < Budgets().target_gap
    assert Budgets().few_pipelines < Budgets().most_pipelines < Budgets().all_pipelines
