"""Deadline tests of many classes: of all orders at once, and of each order that is left."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

from planner.bounds import orders
from planner.bounds.any_order import AnyOrder
from planner.bounds.deadline_test import DeadlineTest, deadline_bound
from planner.bounds.ordered_stages import OrderedStages
from planner.bounds.orders import ALL_LISTED, LISTED, SomeOrder, deadline_tests
from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes
from planner.request import Request
from planner.space.shape import Shape
from sim.hardware.cluster import Trunk
from tests import builders as make
from tests.more import after
from tests.planner.bounds.test_kind_filling import SHAPES, least_steps
from tests.planner.builders import SEARCHED_ONCE, many_clusters, random_request, request

SHAPE = Shape(1, 1, 1, "none", "1f1b", 1, 1)
LATE = 1e6


def some_order(context: PlanningContext, shape: Shape) -> SomeOrder:
    """The test of all pipelines of a shape."""

    def stages(order) -> OrderedStages:
        return OrderedStages(context, order)

    return SomeOrder(stages, stages(node_classes(context, shape)).in_any_order())


def line_of_cities(number: int, far: float, nodes: int = 1) -> Request:
    """Cities of one device, or more nodes of one, in a line: each has a fast link to the next, and slow ones to the others."""
    nic = make.nic("ethernet", 1e7, latency=1e-3)
    names = "abcdefgh"[:number]
    near = {frozenset(pair) for pair in itertools.pairwise(names)}
    trunks = tuple(
        Trunk((a, b), "ethernet", 1e7 if {a, b} in near else far, 1e-3) for i, a in enumerate(names) for b in names[i + 1 :]
    )
    machines = make.fleet(*(make.cluster(name, nodes=nodes, nics=(nic,)) for name in names), trunks=trunks)
    return request(machines, make.model(number), 8, SEARCHED_ONCE)


@pytest.mark.parametrize("seed", after(2, (0, 1, 3, 2, *range(4, 20)), last=4))
def test_five_clusters_have_bounds_below_every_pipeline(seed):
    context = PlanningContext(many_clusters(seed, 5))
    for shape in SHAPES:
        if len(node_classes(context, shape)) < 5:
            continue
        least = min(least_steps(context, shape).values(), default=LATE)
        test = some_order(context, shape)
        bound = deadline_bound([test], 0.0, LATE)
        assert deadline_bound([AnyOrder(test.order, test.stages)], 0.0, LATE) <= bound * (1 + 1e-9)
        assert bound <= deadline_bound(test.by_counts(LATE), bound, LATE) <= least * (1 + 1e-9)
        every = min(seconds for pp, seconds in least_steps(context, shape, 1).items() if pp > 1)
        later = every * (1 + 1e-6)
        assert deadline_bound(deadline_tests(context, node_classes(context, shape), later), 0.0, later) <= every * (1 + 1e-9)


@pytest.mark.parametrize("seed", after(3, range(600, 618), last=6))
def test_few_clusters_have_them_too(seed, monkeypatch):
    """Clusters of several nodes, as if two clusters were many."""
    monkeypatch.setattr(orders, "CLASSES", 1)
    context = PlanningContext(random_request(seed))
    for shape in SHAPES:
        if len(node_classes(context, shape)) < 2:
            continue
        least = min(least_steps(context, shape).values(), default=LATE)
        test = some_order(context, shape)
        assert deadline_bound(test.by_counts(LATE), 0.0, LATE) <= least * (1 + 1e-9)


def test_without_a_plan_yet_nothing_is_bisected():
    """A search for the number of stages with the least bound once divided infinity by itself."""
    context = PlanningContext(line_of_cities(5, far=1e7))
    test = some_order(context, SHAPE)
    assert deadline_bound([test], 0.0, math.inf) == 0.0
    assert 0.0 < deadline_bound([test], 0.0, LATE) == deadline_bound([some_order(context, SHAPE)], 0.0, LATE) < LATE


def test_slow_links_leave_the_orders_that_avoid_them():
    """Of 325 orders of five cities, two have no slow link: from a to e and from e to a."""
    context = PlanningContext(line_of_cities(5, far=1e3))
    classes = node_classes(context, SHAPE)
    seconds = 1.0  # a message on a slow link takes 12 s
    tests = [test for test in deadline_tests(context, classes, seconds) if len(test.order) == 5]
    assert {"".join(option.cluster.name for option in test.order) for test in tests} == {"abcde", "edcba"}
    assert all(isinstance(test, DeadlineTest) for test in tests)
    (whole,) = deadline_tests(PlanningContext(line_of_cities(5, far=1e7)), classes, LATE)
    assert isinstance(whole, SomeOrder)


def test_where_orders_are_too_many_they_are_not_tested_one_by_one(monkeypatch):
    """The bound is then that of all orders at once; with more tests it rises, also by numbers of stages."""
    context = PlanningContext(many_clusters(8, 5, layers=8))
    test = some_order(context, SHAPE)
    known, each = (deadline_bound([one], 0.0, LATE) for one in (AnyOrder(test.order, test.stages), test))
    assert known * 1.02 < each < deadline_bound(test.by_counts(LATE), 0.0, LATE) / 1.02
    monkeypatch.setattr(orders, "TESTS", 0)
    assert known <= deadline_bound([some_order(context, SHAPE)], 0.0, LATE) < each


def test_more_orders_are_listed_for_their_pipelines_than_are_tested_for_a_bound():
    """Five cities have 320 orders of two cities or more, all of which may have a step of 1e6 seconds."""
    test = some_order(PlanningContext(line_of_cities(5, far=1e7)), SHAPE)
    assert test.tests(LATE) is None
    listed = test.tests(LATE, LISTED)
    assert listed is not None and len({one.order for one in listed}) == len(listed) == 320
    assert test.tests(LATE, LISTED // 2) is None


def test_all_orders_of_six_cities_are_listed_where_each_has_few_numbers_of_stages():
    """Six cities of one device have 1,950 orders of two cities or more; each has one number of stages."""
    test = some_order(PlanningContext(line_of_cities(6, far=1e7)), SHAPE)
    assert test.has_few_splits
    assert test.tests(LATE, LISTED) is None
    listed = test.tests(LATE, ALL_LISTED)
    assert listed is not None and len({one.order for one in listed}) == len(listed) == 1950
    several = some_order(PlanningContext(line_of_cities(6, far=1e7, nodes=4)), SHAPE)
    assert not several.has_few_splits, "4^6 numbers of stages"


def test_a_tied_embedding_that_is_sharded_has_ends_of_one_tp():
    """tp 2 on a and c, tp 1 on the other cities."""
    nic = make.nic("ethernet", 1e7, latency=1e-3)
    machines = make.fleet(
        *(make.cluster(name, devices=4, nics=(nic,)) for name in "abcde"),
        trunks=tuple(Trunk(pair, "ethernet", 1e7, 1e-3) for pair in itertools.combinations("abcde", 2)),
    )
    context = PlanningContext(request(machines, make.model(6, tied_embeddings=True), 8))
    shape = replace(SHAPE, tp=2, dp=2, cluster_tp=(("b", 1), ("d", 1), ("e", 1)))
    test = some_order(context, shape)
    found = {(one.order[0].cluster.name, one.order[-1].cluster.name) for one in test._listed(LATE) if one is not None}
    narrow, wide = set("bde"), set("ac")
    assert found
    assert all({first, last} <= narrow or {first, last} <= wide for first, last in found)
