"""The planning context: each strategy's plan is computed once for a request."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import pytest

from planner.costs.context import PlanningContext
from planner.request import Wishes
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


def test_a_context_of_another_request_knows_the_costs_that_both_have():
    asked = on_one_cluster()
    one = PlanningContext(asked)
    same, pinned = one.of(replace(asked, time_limit=1.0)), one.of(replace(asked, wishes=Wishes(pp=2)))
    assert same.options is one.options and same.messages is one.messages and same.cluster_costs is one.cluster_costs
    assert pinned.options is not one.options and pinned.messages is one.messages and pinned.passes is one.passes
    assert one.limit is not same.limit and same.request.time_limit == 1.0


def test_a_context_of_other_nodes_or_samples_knows_nothing():
    """Positions on nodes depend on their number, and stages on the workload."""
    asked = on_one_cluster(nodes=4)
    one = PlanningContext(asked)
    fewer = one.of(replace(asked, machines=(("a", 2),)))
    other = one.of(replace(asked, workload=replace(asked.workload, global_batch_size=2 * asked.workload.global_batch_size)))
    assert fewer.cluster_costs is not one.cluster_costs and other.cluster_costs is not one.cluster_costs


def test_another_process_is_sent_the_request_alone():
    one = PlanningContext(on_one_cluster())
    found = pickle.loads(pickle.dumps(one))
    assert found.request == one.request and found.cluster_costs is not one.cluster_costs


def test_a_copy_shares_the_costs_and_the_time_limit():
    context = PlanningContext(on_one_cluster())
    other = copy.copy(context)
    assert (other.limit, other.options, other.effort) == (context.limit, context.options, context.effort)
    assert other.limit is context.limit and other.fleets is context.fleets
    other.progress = print
    assert context.progress is not print
