"""The deadline test: whether some pipeline over given node classes, in a given order, can finish a step within T seconds.

A negative answer is a proof, so a search over T yields a lower bound on the step time (`deadline_bound`). The test is a
conjunction of necessary conditions. Take a stage of k layers with b layers before it, in a step of m microbatches:

    max(fill(b), begin(k)) + m slot(k) + tail(k)                                                        <= T   (its own end)
    max(fill(b), begin(k)) + max(m busy(k) - owed weight(k), m lane(k)) + drain(b) + least first tail   <= T   (the way back)

fill(b)    forwards and messages of the first microbatch through the b layers before, on the classes where they take least.
begin(k)   when the weight gathers of the stage let its first forward begin.
slot(k)    what one microbatch takes of the stage's most loaded resource: rank time, gradient network or message lane.
busy(k)    what one microbatch takes of the stage's rank time; lane(k): of its message lane.
owed       weight gradients (W) that a zero-bubble schedule may run after the last backward (B).
tail(k)    what follows the last backward on the stage itself: gradient reduction, optimizer, tied embedding.
drain(b)   gradients of inputs and messages of the last microbatch on its way back through these layers.

Why the first holds: the stage cannot begin before the first microbatch arrives, its slots do not overlap, and its tail follows
them. Why the second holds: after the last backward of this stage, the last microbatch still passes all stages before it, and
then the first stage still has its own tail. If the stage starts after fill, one division of the layers gives both fill and
drain, so the least sum of forwards and gradients of inputs counts. If it starts after begin, fill is not counted, and drain is
the least of the gradients of inputs alone. Where a message holds its sender, the send of the last gradient is part of drain,
not of busy.

Three relaxations of a pipeline are tested: the sum over classes (`AnyOrder`), the greedy filling of stages with layers
(`planner.bounds.greedy_filling`, which proves that greedy is optimal), and the busiest link (`planner.bounds.link_load`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, islice, permutations, product

from planner.bounds.greedy_filling import Filling, Pipeline
from planner.bounds.link_load import LinkLoad
from planner.bounds.ordered_stages import OrderedStages, most_by_compute
from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass
from planner.placement.leaves import oversubscribed

PRECISE = 1e-3
"""Relative width of the interval at which the bisection for a bound stops (a guess). A larger one loosens bounds."""
CLASSES = 4
"""Number of classes up to which every order of every subset is tested (a guess); with more, `AnyOrder` has to do."""
COUNTS = 200
"""Numbers of stages per class that are tested one by one for a schedule that needs a certain number of stages in all (a guess);
if there are more, the largest number of each class is tested, all at once, which is quicker and weaker."""

Orders = frozenset[tuple[str, ...]] | None
"""Orders of classes, each as the names of their clusters; None means all of them."""


def deadline_bound(tests: Sequence[DeadlineTest | AnyOrder], least: float, cutoff: float) -> float:
    """A lower bound in seconds on the step of all pipelines of the tests, at least `least` and at most `cutoff`.

    Bisection on a logarithmic scale. Invariant: no test passes at `low` (or it is `least`), and some test passes at `high`."""
    low, high = least, cutoff
    if low >= high or not any(test.within(high) for test in tests):
        return max(low, high)
    while math.isfinite(high) and high > low * (1 + PRECISE):
        middle = math.sqrt(low * high) if low > 0 else high / 2
        if any(test.within(middle) for test in tests):
            high = middle
        else:
            low = middle
    return low


def deadline_tests(
    context: PlanningContext, classes: Sequence[NodeClass], seconds: float, either: bool = False, among: Orders = None
) -> list[DeadlineTest | AnyOrder]:
    """Tests that do not rule out a step of `seconds`, which together cover all pipelines of two or more stages on the classes.

    `either` as in `OrderedStages`; `among`: the orders of classes that are not ruled out already."""
    whole = AnyOrder(classes)
    if not whole.within(seconds):
        return []
    if len(classes) > CLASSES:
        return [whole]
    every = (DeadlineTest(OrderedStages(context, order, seconds, either)) for order in _ordered(classes, seconds, among))
    return [test for test in every if test.within(seconds)]


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
    classes under the ZeRO stage that needs least memory. among: the orders that are not ruled out already."""
    if not AnyOrder(holders).within(seconds):
        return frozenset()
    if len(classes) > CLASSES:
        return None
    every = _ordered(classes, seconds, among)
    tests = (DeadlineTest(family(context, order, holders, seconds)) for order in every)
    return frozenset(_names(test.order) for test in tests if test.within(seconds))


def _ordered(classes: Sequence[NodeClass], seconds: float, among: Orders) -> Iterator[tuple[NodeClass, ...]]:
    """Every order of every subset of the classes whose stages can compute all layers within `seconds`."""
    able = [option for option in classes if option.microbatches * option.layer_seconds <= seconds]
    for size in range(1, len(able) + 1):
        for some in combinations(able, size):
            if sum(option.capacity * most_by_compute(option, seconds) for option in some) >= some[0].workload.model.layers:
                yield from (order for order in permutations(some) if among is None or _names(order) in among)


def _names(order: Sequence[NodeClass]) -> tuple[str, ...]:
    return tuple(option.cluster.name for option in order)


class AnyOrder:
    """The deadline test of all pipelines on some classes in any order: by compute and memory, without fill and drain.

    It holds because each stage of a class has at most the layers that it computes for all m microbatches within T and that fit
    beside the activations of one microbatch; all stages together must hold the model's layers."""

    exact = False

    def __init__(self, classes: Sequence[NodeClass]):
        self.order = tuple(classes)

    def within(self, seconds: float) -> bool:
        """Whether some pipeline might finish within `seconds` (False is a proof that none does)."""
        return sum(option.capacity * self._most(option, seconds) for option in self.order) >= self._layers

    @property
    def _layers(self) -> int:
        return self.order[0].workload.model.layers if self.order else 1

    def _most(self, option: NodeClass, seconds: float) -> int:
        """Most layers of one stage beside the fewest microbatches in flight, by the compute of its layers alone."""
        one = ((option.shape.vpp, 0),)
        return min(option.memory.most_layers("middle", one), most_by_compute(option, seconds))

    def pipelines(self, seconds: float, most: int) -> list[Pipeline] | None:
        """None: pipelines in any order are not listed."""
        return None


class DeadlineTest:
    """The deadline test of pipelines over classes in one order, with one stage or more of each (`OrderedStages`)."""

    def __init__(self, stages: OrderedStages):
        self.stages, self.order, self._links = stages, stages.order, LinkLoad(stages)
        self.exact = not any(oversubscribed(cluster) for cluster in stages.clusters)
        """Whether the evaluator's seconds are a bound: on an oversubscribed fabric, a better placement than the default may
        exist."""

    def within(self, seconds: float) -> bool:
        """Whether some pipeline might finish within `seconds` (False is a proof that none does)."""
        stages = self.stages
        if not stages.possible or any(option.layer_seconds * stages.m > seconds for option in self.order):
            return False
        if not self._fill(stages.capacities, seconds):
            return False
        counts = self._links.most_stages(seconds)
        return counts == stages.capacities or self._fill(counts, seconds)

    def _fill(self, counts: list[int], seconds: float) -> bool:
        """Whether all layers find a stage in time, with at most `counts` stages of each class."""
        if not self._computable(counts, seconds) or not all(counts):
            return False
        if not Filling(self.stages, seconds, counts, None).succeeds():
            return False
        return not self.stages.chunked or any(
            self._computable(some, seconds)
            and Filling(self.stages, seconds, some, pp).succeeds()
            and self._links.carries(some, pp, seconds)
            for pp, some in self._lengths(counts, seconds)
        )

    def pipelines(self, seconds: float, most: int) -> list[Pipeline] | None:
        """All pipelines that are not ruled out to finish within `seconds`; None where there are more than `most`."""
        stages = self.stages
        found: list[Pipeline] = []
        counts = self._links.most_stages(seconds) if stages.possible else [0]
        if math.prod(counts) > most:
            return None
        for some in product(*(range(1, count + 1) for count in counts)):
            pp = sum(some)
            able = stages.pinned in (None, pp) and 2 <= pp <= stages.layers // stages.shape.vpp
            if not able or stages.shape.places(stages.m, pp) != pp:
                continue
            if self._computable(some, seconds) and self._links.carries(some, pp, seconds):
                found += Filling(stages, seconds, list(some), pp).pipelines(most + 1 - len(found))
            if len(found) > most:
                return None
        return found

    def _lengths(self, most: list[int], seconds: float) -> Iterator[tuple[int, list[int]]]:
        """(pp, stages of each class) for every number of stages pp that the schedule is defined for.

        Where pp can be split over the classes in more than `COUNTS` ways: pp with the most stages of each class."""
        stages = self.stages
        fewest = math.ceil(stages.layers / max(stages.most_by_compute(seconds)))
        for pp in range(max(2, fewest, len(most)), min(sum(most), stages.layers // stages.shape.vpp) + 1):
            if stages.pinned in (None, pp) and stages.shape.places(stages.m, pp) == pp:
                limits = [min(one, pp - len(most) + 1) for one in most]
                splits = (
                    some for some in product(*(range(1, one + 1) for one in limits[1:])) if 0 < pp - sum(some) <= limits[0]
                )
                found = list(islice(splits, COUNTS + 1))
                for some in found if len(found) <= COUNTS else []:
                    yield pp, [pp - sum(some), *some]
                if len(found) > COUNTS:
                    yield pp, limits

    def _computable(self, counts: Sequence[int], seconds: float) -> bool:
        """Whether `counts` stages of each class hold all layers by the compute of the layers alone."""
        most = self.stages.most_by_compute(seconds)
        return sum(count * one for count, one in zip(counts, most, strict=True)) >= self.stages.layers
