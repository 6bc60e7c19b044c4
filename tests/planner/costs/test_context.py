"""The planning context: each strategy's plan is computed once for a request."""

from __future__ import annotations

import pytest

from planner.costs.context import PlanningContext
from sim.errors import Infeasible
from tests import builders as make
from tests.planner.builders import on_one_cluster


def test_a_strategy_runs_once_and_its_plan_is_shared():
    calls, said = [], []
    context = PlanningContext(on_one_cluster(), said.append)
    plan = make.plan(make.fleet(make.cluster()))

    def compute():
        calls.append(1)
        return plan

    assert context.answer("one", compute) is plan
    assert context.answer("one", compute) is plan
    assert context.answer("two", compute) is plan
    assert len(calls) == 2
    assert said == ["strategy one", "strategy two"]


def test_a_strategy_without_a_plan_does_not_run_again():
    calls = []
    context = PlanningContext(on_one_cluster())

    def compute():
        calls.append(1)
        raise Infeasible("too large")

    for _ in range(2):
        with pytest.raises(Infeasible, match="too large"):
            context.answer("one", compute)
    assert len(calls) == 1
