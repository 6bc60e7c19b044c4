"""The deadline test of all orders at once."""

from __future__ import annotations

import itertools
import math

import pytest

from planner.bounds.any_order import AnyOrder
from planner.bounds.deadline_test import ROUGH, deadline_bound
from planner.bounds.ordered_stages import OrderedStages
from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes
from planner.space.shape import Shape
from tests.more import after
from tests.planner.bounds.test_kind_filling import least_steps
from tests.planner.builders import random_request

SHAPES = [
    Shape(1, dp, 1, "none", schedule, vpp, 1)
    for dp in (1, 2)
    for schedule, vpp in (("1f1b", 1), ("zb-h2", 1), ("interleaved", 2))
]


@pytest.mark.parametrize("seed", after(6, range(600, 618), last=10))
def test_its_bound_is_not_above_any_pipeline(seed):
    """For every subset of two or more classes, every order of the subset and all layers, by the evaluator."""
    context = PlanningContext(random_request(seed))
    for shape in SHAPES:
        classes = node_classes(context, shape)
        if len(classes) < 2:
            continue
        bound = deadline_bound([AnyOrder(classes, OrderedStages(context, classes).in_any_order())], 0.0, 1e6)
        assert bound <= min(least_steps(context, shape).values(), default=1e6) * (1 + 1e-9)


@pytest.mark.parametrize("seed", [601, 607, 611])
def test_it_sees_that_pipelines_fill_and_drain(seed):
    """Compute and memory alone give a lower bound."""
    context = PlanningContext(random_request(seed))
    classes = node_classes(context, SHAPES[0])
    whole = AnyOrder(classes, OrderedStages(context, classes).in_any_order())
    assert deadline_bound([whole], 0.0, 1e6) > deadline_bound([AnyOrder(classes)], 0.0, 1e6) * 1.01


def test_of_several_tests_the_least_bound_counts():
    """Each test passes from its own seconds on; a bound that is known already is not lowered."""

    class From:
        def __init__(self, seconds: float):
            self.seconds = seconds

        def within(self, seconds: float) -> bool:
            return seconds >= self.seconds

    tests = [From(7.0), From(3.0), From(5.0)]
    for order in itertools.permutations(tests):
        assert deadline_bound(order, 0.0, 20.0) == pytest.approx(3.0, rel=1e-3)
        assert deadline_bound(order, 0.0, 20.0) <= 3.0
        assert deadline_bound(order, 4.0, 20.0) == 4.0
    assert deadline_bound(tests, 0.0, 2.0) == 2.0
    assert 3.0 / 1.05 <= deadline_bound(tests, 0.0, 20.0, ROUGH) <= 3.0
    assert deadline_bound([], 0.0, 2.0) == 2.0
    assert math.isclose(deadline_bound([From(0.0)], 0.0, 2.0), 0.0, abs_tol=1e-9)
