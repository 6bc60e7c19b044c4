"""Deadline tests of pipelines over several node classes: one for each order of the classes that a deadline may leave.

Up to `CLASSES` classes, every order of every subset is tested. Of more classes, the orders are too many. There each class is
tested alone, and the others by the deadline test of all orders at once (`planner.bounds.any_order`). Where a network is slow,
it leaves few orders, for it knows the message between each two classes that follow one another. These are listed, class by
class from the end of the pipeline, and tested one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, permutations
from typing import TypeAlias

from planner.bounds.any_order import AnyOrder, SubsetFilling
from planner.bounds.deadline_test import FEW_SPLITS, DeadlineTest
from planner.bounds.kind_filling import MORE_STATES, NEAR, NEARER, STATES, kinds_of, least_of_lengths, may_have_some_length
from planner.bounds.ordered_stages import OrderedStages, most_by_compute
from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass
from planner.space import lengths

CLASSES = 4
"""Number of classes up to which every order of every subset is tested (a guess). With more, all orders are tested at once, with
every number of stages, and those that are left one by one."""
FILLINGS = 5_000
"""Most ends of orders of many classes that are filled to list the orders (a guess): a fifth of a second."""
TESTS = 100
"""Most orders of many classes, or numbers of stages of each class in them, that are tested for a bound (a guess): a tenth of a
second. Five times as many raise no bound of dtfm-4, and take almost a third of the time of a proof for 102,400 devices."""
LISTED = 400
"""The same where all their pipelines are evaluated next (a guess)."""
ALL_LISTED, ALL_FILLINGS = 4_000, 100_000
"""`LISTED` and `FILLINGS` where a proof leaves a gap and an order has few numbers of stages (guesses): on dtfm-4, 1,600
orders of eight cities are left 9 % below its plan."""
FEW = 64
"""Most orders of many classes that are treated one by one from then on: as many as four classes have. To list pipelines, up to
`LISTED` are."""

Orders: TypeAlias = frozenset[tuple[str, ...]] | None
"""Orders of classes, each as the names of their clusters; None means all of them."""
Make: TypeAlias = Callable[[Sequence[NodeClass]], OrderedStages]
"""Makes the stages of an order of classes."""


def deadline_tests(
    context: PlanningContext, classes: Sequence[NodeClass], seconds: float, either: bool = False, among: Orders = None
) -> list[DeadlineTest | SomeOrder]:
    """Deadline tests, one for each order of classes that may have a step of `seconds`; one for all orders where they are many.

    All pipelines of two or more stages that no returned test covers take longer. either: as in `OrderedStages`; among: the
    orders of classes that are not ruled out already."""

    def make(order: Sequence[NodeClass]) -> OrderedStages:
        return OrderedStages(context, order, seconds, either)

    if not AnyOrder(classes).within(seconds):
        return []
    stages = make(classes).in_any_order() if len(classes) > 1 else None
    several = stages is not None and AnyOrder(classes, stages).within(seconds)
    most = 1 if not several or len(classes) > CLASSES else len(classes)
    every = (DeadlineTest(make(order)) for order in _ordered(context, classes, seconds, among, most))
    found: list[DeadlineTest | SomeOrder] = [test for test in every if test.within(seconds)]
    if stages is not None and several and len(classes) > CLASSES:
        whole = SomeOrder(make, stages)
        few = whole.tests(seconds)
        found += [whole] if few is None else few
    return found


def orders_within(
    family: Callable[..., OrderedStages],
    context: PlanningContext,
    classes: Sequence[NodeClass],
    holders: Sequence[NodeClass],
    seconds: float,
    among: Orders = None,
) -> Orders:
    """Orders of classes in which some pipeline of two or more stages of a family of shapes might finish within `seconds`.

    family: makes the stages of the family (`planner.bounds.shape_families`) for an order of `classes`. holders: the same
    classes with the least memory under any of its ZeRO stages. among: the orders that are not ruled out already. Orders of many
    classes are not listed: all of them, or none."""

    def make(order: Sequence[NodeClass]) -> OrderedStages:
        return family(context, order, holders, seconds)

    if not AnyOrder(holders).within(seconds):
        return frozenset()
    stages = make(classes).in_any_order() if len(classes) > 1 else None
    several = stages is not None and AnyOrder(holders, stages).within(seconds)
    if stages is not None and several and len(classes) > CLASSES:
        several = not stages.chunked or may_have_some_length(stages, seconds)
        if several:
            return None
    tests = (DeadlineTest(make(order)) for order in _ordered(context, classes, seconds, among, len(classes) if several else 1))
    return frozenset(_names(test.order) for test in tests if test.within(seconds))


class SomeOrder(AnyOrder):
    """The deadline test of all pipelines on two or more of many classes in any order.

    Each number of stages is also tested, and the orders that are left one by one, if they are few."""

    def __init__(self, make: Make, stages: OrderedStages, counted: bool = False):
        """make: makes the stages of one order. stages: of the classes in any order. counted: an order is also tested with every
        number of stages of each class."""
        super().__init__(stages.order, stages)
        self.stages, self._make, self._counted = stages, make, counted
        self._tests: dict[tuple[int, ...], DeadlineTest] = {}
        self._fails: dict[DeadlineTest, float] = {}
        self._left, self._latest, self._least = TESTS, 0.0, 0.0

    def within(self, seconds: float) -> bool:
        """Whether some pipeline might finish within `seconds` (False is a proof that none does)."""
        if not super().within(seconds) or seconds <= self._least_of_lengths(seconds):
            return False
        return any(test is None or self._passes(test, seconds) for test in self._listed(seconds))

    def tests(self, seconds: float, most: int = TESTS) -> list[DeadlineTest] | None:
        """Deadline tests of all orders that may have a step of `seconds`; None where they are too many to list, or more than
        `most` orders would have to be tested."""
        found: list[DeadlineTest] = []
        self._left, fillings = most, ALL_FILLINGS if most >= ALL_LISTED else FILLINGS
        for test in self._listed(seconds, fillings):
            if test is None or len(found) == (FEW if most < LISTED else most):
                return None
            found += [test] * self._passes(test, seconds)
        return found

    @property
    def has_few_splits(self) -> bool:
        """Whether an order has few numbers of stages of each class, so that many orders can be listed (`ALL_LISTED`)."""
        return math.prod(option.max_stages for option in self.order) <= FEW_SPLITS

    def by_counts(self, seconds: float) -> list[SomeOrder]:
        """The same test with every number of stages of each class."""
        return [SomeOrder(self._make, self.stages, True)]

    def _least_of_lengths(self, seconds: float) -> float:
        """A lower bound on the pipelines of every number of stages; at most the latest `seconds` that were asked for. Without a
        plan yet, these are infinite, and nothing is bisected."""
        if self._latest < seconds < math.inf:
            self._latest = seconds
            is_coarse = self._counted and len(kinds_of(self.stages)) == 1
            how = NEARER if self._counted else NEAR, MORE_STATES if is_coarse else STATES
            self._least = least_of_lengths(self.stages, self._least, seconds, *how)
        return self._least

    def _listed(self, seconds: float, fillings: int = FILLINGS) -> Iterator[DeadlineTest | None]:
        """Deadline tests of the orders that the test of all orders leaves; at last None where they are too many to list."""
        for number, (order, complete) in enumerate(SubsetFilling(self.stages, seconds).ends()):
            classes = [self.order[i] for i in order]
            if number == fillings or self._left <= 0:
                yield None
                return
            if complete and _is_allowed(self.stages.context, classes):
                if order not in self._tests:
                    self._tests[order] = DeadlineTest(self._make(classes))
                if self._fails.get(self._tests[order], 0.0) < seconds:
                    yield self._tests[order]

    def _passes(self, test: DeadlineTest, seconds: float) -> bool:
        """Whether a pipeline in the order of a test might finish within `seconds`."""
        self._left -= 1
        passes = test.within(seconds)
        every = test.by_counts(seconds) if passes and self._counted else None
        if every is not None:
            self._left -= len(every)
            passes = any(one.within(seconds) for one in every)
        if not passes:
            self._fails[test] = seconds
        return passes


def _ordered(
    context: PlanningContext, classes: Sequence[NodeClass], seconds: float, among: Orders, most: int
) -> Iterator[tuple[NodeClass, ...]]:
    """Every order, if in `among`, of every subset of up to `most` classes whose stages can compute all layers within `seconds`,
    with ends that the request allows."""
    able = [option for option in classes if option.microbatches * option.layer_seconds <= seconds]
    for size in range(1, min(most, len(able)) + 1):
        for some in combinations(able, size):
            if sum(option.max_stages * most_by_compute(option, seconds) for option in some) >= some[0].workload.model.layers:
                allowed = (order for order in permutations(some) if _is_allowed(context, order))
                yield from (order for order in allowed if among is None or _names(order) in among)


def _is_allowed(context: PlanningContext, order: Sequence[NodeClass]) -> bool:
    """Whether the request allows a pipeline with these ends, and on no other clusters. A pipeline of one degree is that of a
    shape of one degree."""
    shape = order[0].shape
    if len({option.own.tp for option in order}) == 1 and shape.cluster_tp:
        return False
    return lengths.allows_order(context.request, shape, _names(order))


def _names(order: Sequence[NodeClass]) -> tuple[str, ...]:
    return tuple(option.cluster.name for option in order)
