"""All pipelines of a few virtual stages whose layers differ."""

from __future__ import annotations

import math

import pytest

from planner.costs.context import PlanningContext
from planner.costs.unlike_layers import UnlikeCosts
from planner.search import unlike_exhaust
from planner.search.unlike_exhaust import exhausted
from planner.search.unlike_splits import Split
from tests.planner.unlike import interleaved, only_shape, question

WANTED = question(interleaved(2))
SHAPE = only_shape(WANTED)
CONTEXT = PlanningContext(WANTED)
CLASSES = UnlikeCosts(CONTEXT).classes(SHAPE)
CLOSED = {n: Split(CONTEXT, SHAPE, (CLASSES[0],) * 2).seconds((n, 8 - n))[0] for n in range(2, 7)}
"""Closed form of the two ranks of a class, with n and 8 - n layers, by n."""


def test_what_is_slow_by_its_closed_form_is_not_built() -> None:
    tried: list[object] = []
    cutoff = sorted(CLOSED.values())[2]

    def try_(pipeline):
        tried.append(pipeline)
        return 2 * cutoff

    assert exhausted(CONTEXT, SHAPE, CLASSES, 2, cutoff, try_) == cutoff  # the third one
    best = sorted(CLOSED, key=CLOSED.__getitem__)[:2]
    assert sorted(tried) == sorted((("a", n), ("a", 8 - n)) for n in best)


def test_the_bound_is_that_of_the_plans_that_were_built() -> None:
    least = min(CLOSED.values())
    assert exhausted(CONTEXT, SHAPE, CLASSES, 2, math.inf, lambda _: 0.0) == least
    assert exhausted(CONTEXT, SHAPE, CLASSES, 2, math.inf, lambda _: 7.0) == 7.0
    assert exhausted(CONTEXT, SHAPE, CLASSES, 2, math.inf, lambda _: math.inf) == math.inf, "none fits"


def test_without_time_or_with_many_pipelines_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    assert exhausted(CONTEXT, SHAPE, CLASSES, 2, math.inf, lambda _: None) is None
    monkeypatch.setattr(unlike_exhaust, "MOST", 4)
    assert exhausted(CONTEXT, SHAPE, CLASSES, 2, math.inf, lambda _: 0.0) is None
