"""Bounds of plans with mixed stages."""

from __future__ import annotations

import pytest

from planner.bounds.mixed_deadline import mixed_bound
from planner.bounds.total_work import work_bound
from planner.costs.context import PlanningContext
from planner.placement.simulation import simulate_plan, step
from planner.search.mixed import is_mixed, mixed, mixed_placements
from tests.planner.builders import random_request, random_request_with_experts_or_long_sequences


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", [random_request, random_request_with_experts_or_long_sequences])
def test_bounds_of_mixed_stages_hold_and_the_closer_one_is_closer(kind, seed):
    question = kind(seed)
    context = PlanningContext(question)
    bound, closer = work_bound(context), mixed_bound(context, mixed_placements(question), 1e9, context.limit)
    assert bound <= closer * (1 + 2e-3)  # it is sought to that share
    for _, plan in mixed(context, "by hand", context.limit):
        assert is_mixed(plan)
        assert max(bound, closer) <= step(simulate_plan(plan)) * (1 + 1e-9)
        assert sum(plan.config.num_microbatches) == question.workload.global_batch_size
