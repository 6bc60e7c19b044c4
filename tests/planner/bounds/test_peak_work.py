"""All devices compute all products at their peak: a bound that takes no time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from planner import api
from planner.bounds.peak_work import peak_seconds
from planner.bounds.total_work import work_bound
from planner.costs.context import PlanningContext
from planner.placement.simulation import step
from sim.workload.routing import Routing
from tests.planner.builders import Drawn, drawn_plans, on_two_clusters
from tests.planner.unlike import question


def test_two_speeds_by_hand() -> None:
    """Four layers of 12 x 96^2 weights, 6 x 64 tokens, six operations for each; 2e9 and 1e9 operations a second."""
    assert peak_seconds(on_two_clusters(layers=4, batch=6)) == pytest.approx(6 * 12 * 96**2 * 4 * 6 * 64 / 3e9)


def test_tokens_that_experts_drop_are_not_counted() -> None:
    wanted = question()
    assert 0 < peak_seconds(wanted) < step(api.plan(wanted))
    few = replace(wanted.workload, routing=Routing(capacity_factor=0.5))
    assert peak_seconds(replace(wanted, workload=few)) == 0.0


@given(drawn_plans())
def test_it_is_below_the_total_work(drawn: Drawn) -> None:
    assert peak_seconds(drawn.request) <= work_bound(PlanningContext(drawn.request)) * (1 + 1e-9)
