"""Seconds of the gradients of a column on its busiest link."""

from __future__ import annotations

import pytest

from planner.bounds.unlike_pipelines import payload
from planner.pipelines.columns import Columns
from planner.pipelines.gradients import gradient_seconds
from tests.planner.pipelines.fleets import two_kinds


def test_gradients_of_ranks_that_divide_experts():
    """Both devices of the node of `b` have half of the experts. Both and one rank of another node sum dense weights: two thirds
    of them leave the node. Each and that rank sum its experts: half of them leave it."""
    asked = two_kinds(experts=4, memory=4e9)
    columns = Columns(asked)
    columns.divide_experts((0, 1), False)
    plan = next(one.plan for one in columns.of((0, 1), False) if one.plan.config.ep == 2)
    assert (plan.config.dp, plan.config.tp, plan.config.pp) == (2, 1, 1)
    model, (dense, routed) = asked.workload.model, (payload(asked, (kind,)) for kind in ("dp", "edp"))
    dense += 6 * (model.embedding_parameters + model.head_parameters)
    found = gradient_seconds(tuple(asked.clusters()), (0, 1), plan)
    assert found == pytest.approx((dense * 2 / 3 + routed / 2) / 1e9)
