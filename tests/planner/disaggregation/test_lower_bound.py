"""No stage with two sets of ranks is faster than the bound of the search."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

from planner.disaggregation.lower_bound import least_step, lower_bound
from planner.disaggregation.search import RECOMPUTE, best, chunk_size, sides, starts
from planner.time_limit import TimeLimit
from sim.disaggregation.costs import step_seconds
from tests.more import after
from tests.planner.disaggregation.test_brute_force import SEEDS, drawn


@pytest.mark.parametrize("seed", after(4, SEEDS[:20], 8))
def test_no_choice_of_kept_experts_is_faster_than_the_bound_of_its_start(seed):
    topology, workload = drawn(seed)
    for attention, experts in sides(topology, workload):
        for start in itertools.islice(starts(topology, workload, attention, experts, RECOMPUTE), 0, None, 5):
            bound, numbers = least_step(start), range(0, workload.model.experts, chunk_size(start))
            steps = [step_seconds(replace(start, kept=kept)) for kept in itertools.product(numbers, repeat=3)]
            assert bound <= min(steps) * (1 + 1e-9)


@pytest.mark.parametrize("seed", SEEDS[:4])
def test_the_found_stage_is_not_faster_than_the_bound(seed):
    topology, workload = drawn(seed)
    found, bound = best(topology, workload), lower_bound(topology, workload, TimeLimit(math.inf))
    assert found is not None and bound is not None
    assert 0 < bound <= found.step * (1 + 1e-9)


def test_the_bound_meets_some_steps_and_is_never_below_seven_eighths():
    """Where one path through the tasks decides, whatever experts each layer keeps, the bound is the step."""
    bounds = []
    for seed in SEEDS[:8]:
        found, bound = best(*drawn(seed)), lower_bound(*drawn(seed), TimeLimit(math.inf))
        assert found is not None and bound is not None
        bounds.append(bound / found.step)
    assert max(bounds) > 0.9999
    assert min(bounds) > 0.875


def test_without_time_there_is_no_bound():
    assert lower_bound(*drawn(6), TimeLimit(0.0)) is None
