"""More orders of many clusters are listed where a proof leaves a gap."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.bounds import orders
from planner.placement.simulation import step
from planner.search import exhaust
from planner.search.branch_and_bound import Proof
from planner.search.improvement import Improvement
from tests.planner.bounds.test_orders import line_of_cities
from tests.planner.builders import plan_of, shape
from tests.planner.search.searches import incumbent


@pytest.mark.parametrize("far", [2e6, 1e7])
def test_more_orders_of_clusters_are_listed_where_a_gap_is_left(monkeypatch, far):
    """Five cities in a line: where only one order is listed, the proof ends below the best plan; with more its bound rises."""
    question = line_of_cities(5, far)
    question = replace(question, wishes=replace(question.wishes, pp=5))
    best = step(plan_of(question))
    monkeypatch.setattr(exhaust, "LISTED", 1)
    monkeypatch.setattr(orders, "LISTED", 1)
    monkeypatch.setattr(orders, "TESTS", 0)
    kept = incumbent(question)
    kept.offer(shape(), tuple((name, 1) for name in "acebd"))
    proof = Proof(kept, Improvement(kept))
    proof._exhaust.orders = 1
    left = proof.run([shape()])
    before = min([*proof.settled, *left])
    proof.raise_by_simulation()
    assert before < min([*proof.settled, *left]) <= best * (1 + 1e-9)
