"""More orders of many clusters are listed where a proof leaves a gap."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from planner.bounds import orders
from planner.placement.simulation import step
from planner.search import branch_and_bound
from planner.search.branch_and_bound import Proof
from planner.search.exhaust import OpenVariant
from planner.search.improvement import Improvement
from tests.planner.bounds.test_orders import line_of_cities
from tests.planner.builders import plan_of, shape
from tests.planner.search.searches import incumbent


@dataclass(slots=True, eq=False)
class OneOrder(OpenVariant):
    """A variant of which one order is listed at most, until more are."""

    orders: int = 1


@pytest.mark.parametrize("far", [2e6, 1e7])
def test_more_orders_of_clusters_are_listed_where_a_gap_is_left(monkeypatch, far):
    """Five cities in a line: where only one order is listed, the proof ends below the best plan; with more its bound rises."""
    question = line_of_cities(5, far)
    question = replace(question, wishes=replace(question.wishes, pp=5))
    best = step(plan_of(question))
    monkeypatch.setattr(orders, "LISTED", 1)
    monkeypatch.setattr(branch_and_bound, "OpenVariant", OneOrder)
    monkeypatch.setattr(orders, "TESTS", 0)
    kept = incumbent(question)
    kept.offer(shape(), tuple((name, 1) for name in "acebd"))
    proof = Proof(kept, Improvement(kept))
    left = proof.run([shape()])
    before = min([*proof.settled, *left])
    proof.raise_by_simulation()
    assert before < min([*proof.settled, *left]) <= best * (1 + 1e-9)
