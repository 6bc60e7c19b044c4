"""Variants are evaluated again where the best plan has become far faster."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from planner.search.budgets import Budgets
from planner.search.listed_again import list_again
from planner.search.simulated_bound import KnownVariant
from tests.planner.builders import pipelines, shape
from tests.planner.search.searches import candidate, simulated
from tests.planner.search.test_exhaust import REQUEST, fastest, opened


def evaluated_early():
    """An incumbent, and a variant whose pipelines were too many to list for it; then the second fastest of them is found."""
    kept, exhaust, variant = opened(Budgets(few_pipelines=3, most_pipelines=1), settled=(0.1,))
    exhaust.improvement = SimpleNamespace(improve=lambda shape: None)
    assert exhaust.closer(shape(), variant, 0.1) == (0.1, True)
    every = [one for one in pipelines(REQUEST, shape()) if len(one) > 1]
    _, second, *_ = sorted(every, key=lambda one: candidate(kept.context, shape(), one).seconds)
    kept.keep(simulated(REQUEST, shape(), *second))
    return kept, exhaust, variant


def test_the_bound_rises_and_the_fastest_plan_is_found():
    kept, exhaust, variant = evaluated_early()
    slower, settled, known, counted = kept.cutoff, [0.1, 9e9], dict[int, KnownVariant](), []
    list_again(kept, exhaust, settled, {0: (shape(), variant)}, known, lambda: counted.append(settled[0]))
    assert settled == [pytest.approx(fastest(), rel=1e-12), 9e9] and counted == settled[:1]
    assert kept.cutoff == pytest.approx(fastest(), rel=0.05) and kept.cutoff < slower
    assert known[0].bound == settled[0]


def test_nothing_is_listed_again_for_the_same_step():
    kept, exhaust, variant = evaluated_early()
    variant.target = kept.target * 1.01
    settled: list[float] = [0.1]
    list_again(kept, exhaust, settled, {0: (shape(), variant)}, {}, lambda: pytest.fail("nothing was raised"))
    assert settled == [0.1]


def test_as_many_variants_as_allowed(monkeypatch):
    kept, exhaust, variant = evaluated_early()
    monkeypatch.setattr("planner.search.listed_again.MOST", 0)
    list_again(kept, exhaust, settled := [0.1], {0: (shape(), variant)}, {}, lambda: pytest.fail("nothing was raised"))
    assert settled == [0.1]
