"""Raises the bound of a variant by evaluation: lists the pipelines that its deadline tests do not rule out, and evaluates them.

All pipelines that might finish within some seconds are listed and evaluated. The bound rises to the smaller of these seconds
and the step of the fastest evaluated pipeline: every other pipeline takes longer than these seconds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from planner.bounds.deadline_test import DeadlineTest, Test, deadline_bound
from planner.bounds.greedy_filling import Pipeline
from planner.bounds.orders import ALL_LISTED, LISTED, SomeOrder
from planner.costs.node_classes import NodeClass, under
from planner.search.candidates import Candidate, fastest, priced
from planner.search.dominance import undominated
from planner.search.evaluation import PipelineEvaluation
from planner.search.group_bounds import ruled_out
from planner.search.improvement import Improvement
from planner.search.incumbent import Incumbent
from planner.space.runnable import runs
from planner.space.shape import Shape
from planner.space.shapes import overlaps
from sim.errors import NotModelled
from sim.units import Seconds

MANY = 200
"""Pipelines from which it pays to bound them in groups and to evaluate them without gathers first (a guess): of few, most may
be as fast as the best."""


@dataclass(slots=True, eq=False)
class Evaluated:
    """Pipelines of a shape over classes with their seconds on an idle network, and the fastest candidates among them.

    The seconds of those that were slower than the best plan when they were evaluated are a lower bound above its step."""

    evaluation: PipelineEvaluation
    seconds: dict[Pipeline, float] = field(default_factory=dict)
    fastest: list[Candidate] = field(default_factory=list)

    def add(self, pipelines: Iterable[Pipeline], most: int, cutoff: Seconds) -> int:
        """Evaluate those that are not known; the number of them. cutoff: the step of the best plan. Raises NotModelled."""
        fresh = [pipeline for pipeline in pipelines if pipeline not in self.seconds]
        if fresh:
            found = self.evaluation.evaluated(fresh, cutoff)
            self.seconds |= {pipeline: seconds for seconds, pipeline in found}
            self.fastest += fastest(self.evaluation, found, most)
        return len(fresh)


@dataclass(slots=True, eq=False)
class OpenVariant:
    """A variant with the deadline tests, one per order of its classes, that do not rule out the target.

    `evaluated` holds the pipelines evaluated so far, and the fastest candidates among them, by shape and classes."""

    tests: tuple[DeadlineTest | SomeOrder, ...]
    evaluated: dict[tuple[Shape, tuple[NodeClass, ...]], Evaluated] = field(default_factory=dict)
    few: dict[DeadlineTest, list[Pipeline] | None] | None = None
    """For each test of one order, all pipelines that might beat `target`, or None where they are more than `few_pipelines`."""
    target: float = math.inf
    """Seconds for which `few` was listed."""
    counted: bool = False
    """Whether its bound is that of pipelines with given numbers of stages of each class."""
    known: float = 0.0
    """All its pipelines that take less than so many seconds are evaluated."""
    too_many: float = math.inf
    """Least seconds for which its pipelines were too many to list."""
    orders: int = LISTED
    """Of many classes, so many orders are listed at most."""

    def has_more_orders(self, bound: float) -> bool:
        """Whether `bound` is not that of an evaluated pipeline, and more orders of its classes can be listed
        (`Exhaust.with_many_orders`)."""
        is_left = self.too_many < math.inf or self.known < bound
        return is_left and any(isinstance(one, SomeOrder) and one.has_few_splits for one in self.tests)

    def by_counts(self, bound: float, target: float, precise: float) -> float:
        """A lower bound of at least `bound` and at most `target`, from tests of given numbers of stages of each class."""
        self.counted, every = True, list[Test]()
        for test in self.tests:
            counts = test.by_counts(target)
            if counts is None:
                return bound
            every += counts
        return deadline_bound(every, bound, target, precise)


class Listing(NamedTuple):
    """Seconds, tests of all orders that may finish within them, and for each test all pipelines that, by the test, might."""

    seconds: float
    tests: tuple[DeadlineTest, ...]
    pipelines: list[list[Pipeline]]


@dataclass(slots=True)
class Exhaust:
    """Evaluates the pipelines that deadline tests leave; `pipelines` counts them, `every` holds them.

    `settled` are the final bounds of the proof so far. A variant's bound does not matter where a settled bound is not higher,
    because the certificate takes the least."""

    incumbent: Incumbent
    improvement: Improvement
    settled: list[float]
    pipelines: int = 0
    every: list[Evaluated] = field(default_factory=list)

    def closer(self, shape: Shape, variant: OpenVariant, bound: float, only: bool = False) -> tuple[float, bool]:
        """(a tighter lower bound on a variant's pipelines of two or more stages, whether it is final).

        `only`: the bound matters whatever was settled before, because the variant is searched for a faster plan.

        Where pipelines are too many to list, are not modelled, or may be faster than the evaluator says, the bound stays and is
        final, and `improvement` searches the variant for a faster plan. Where the bound does not matter, or `all_pipelines` are
        evaluated, at most `few_pipelines` are listed for each test."""
        incumbent, budgets = self.incumbent, self.incumbent.budgets
        settled = () if only else self.settled
        least = min(settled, default=math.inf) * (1 - budgets.bound_slack)
        matters = bound < least and self.pipelines < budgets.all_pipelines
        incumbent.unproved += not matters
        if not matters and incumbent.unproved % budgets.round_variants == 0:
            incumbent.simulate_pool(budgets.round_tries)
        try:
            listing = self._listed(shape, variant, bound, matters, settled)
            candidates = list(self._evaluated(shape, variant, listing)) if listing is not None else []
        except NotModelled:
            listing, candidates = None, []
        if listing is None:
            self.improvement.improve(shape)
            return bound, True
        incumbent.add(map(_keeping_step, candidates))
        if not all(test.exact for test in listing.tests):  # a pipeline may be faster than evaluated
            self.improvement.improve(shape)
            return bound, True
        least, variant.known = min((candidate.seconds for candidate in candidates), default=math.inf), listing.seconds
        return max(bound, min(least, listing.seconds)), least <= listing.seconds

    def _listed(
        self, shape: Shape, variant: OpenVariant, bound: float, matters: bool, settled: Sequence[float]
    ) -> Listing | None:
        """All pipelines that might beat the target. If they are too many and the bound `matters`: those that might finish
        within slightly more than the bound, and not later than a settled bound. None where no list is short enough."""
        incumbent, budgets, tests = self.incumbent, self.incumbent.budgets, variant.tests
        most = min([incumbent.target, *settled])
        ordered = tuple(test for test in tests if isinstance(test, DeadlineTest))
        if variant.few is None or variant.target != incumbent.target:
            target, number = incumbent.target, budgets.few_pipelines
            variant.few = {test: undominated(incumbent, shape, test, target, number) for test in ordered}
            variant.target = target
        complete = [pipelines for pipelines in variant.few.values() if pipelines is not None]
        if len(complete) == len(tests):
            return Listing(incumbent.target, ordered, complete)
        listing: Listing | None = None
        share = budgets.bound_step if matters else math.inf
        while share < math.inf:
            seconds = min(most, bound * (1 + share))
            found = self._below(shape, variant, seconds) if seconds < variant.too_many else None
            if found is not None:
                listing = found
            else:
                variant.too_many = min(variant.too_many, seconds)
            enough = found is None or sum(map(len, found.pipelines)) >= budgets.few_pipelines or seconds == most
            share = math.inf if enough else 2 * share
        return listing

    def _below(self, shape: Shape, variant: OpenVariant, seconds: float) -> Listing | None:
        """Pipelines of each test that might finish within `seconds`; where a test has `few`, all that might beat the target.

        None where many orders of the classes are left, or a test lists more than `most_pipelines`."""
        incumbent, known, found = self.incumbent, variant.few or {}, dict[DeadlineTest, list[Pipeline]]()
        for test in variant.tests:
            orders = [test] if isinstance(test, DeadlineTest) else test.tests(seconds, variant.orders)
            if orders is None:
                return None
            for order in orders:
                if incumbent.is_over:
                    return None
                pipelines = known.get(order)
                if pipelines is None:
                    pipelines = undominated(incumbent, shape, order, seconds, incumbent.budgets.most_pipelines)
                if pipelines is None:
                    return None
                found[order] = pipelines
        return Listing(seconds, tuple(found), list(found.values()))

    def _evaluated(self, shape: Shape, variant: OpenVariant, listing: Listing) -> Iterator[Candidate]:
        """The fastest pipelines over each set of classes, under both choices of `overlaps`. Raises NotModelled.

        Pipelines over the same classes are evaluated together, whatever the order of their classes. Many are first bounded in
        groups, and then evaluated without gathers, which rules most of them out under both choices at once."""
        context, cutoff = self.incumbent.context, self.incumbent.cutoff
        for classes, listed in _by_classes(listing).items():
            both = [self._known(variant, one, classes) for one in overlaps(shape) if runs(context.request, one, 2)]
            fresh = [pipeline for pipeline in listed if any(pipeline not in found.seconds for found in both)]
            if both and len(fresh) >= MANY and cutoff < math.inf:
                above = ruled_out(both[0].evaluation, fresh, cutoff)
                if len(both) > 1:
                    fresh = [pipeline for pipeline in fresh if pipeline not in above]
                    every = both[0].evaluation.evaluated(fresh, cutoff, False)
                    above |= {pipeline: least for least, pipeline in every if least > cutoff}
                fresh = [pipeline for pipeline in fresh if pipeline not in above]
                for found in both:
                    found.seconds = above | found.seconds
                self.pipelines += len(above) * len(both)
            for found in both:
                self.pipelines += found.add(fresh, self.incumbent.budgets.kept_pipelines, cutoff)
                yield from found.fastest

    def _known(self, variant: OpenVariant, shape: Shape, classes: tuple[NodeClass, ...]) -> Evaluated:
        """What is evaluated of a variant's pipelines over classes, under one choice of `overlaps`."""
        if (shape, classes) not in variant.evaluated:
            context = self.incumbent.context
            evaluation = PipelineEvaluation(context, shape, under(context, shape, classes), least=True)
            variant.evaluated[shape, classes] = Evaluated(evaluation)
            self.every.append(variant.evaluated[shape, classes])
        return variant.evaluated[shape, classes]

    def with_many_orders(self, shape: Shape, variant: OpenVariant, bound: float) -> tuple[float, bool]:
        """As `closer` for a variant of which too many orders were left to list: more of them are listed, from now on."""
        variant.orders, variant.too_many = ALL_LISTED, math.inf
        return self.closer(shape, variant, bound, only=True)


def _keeping_step(candidate: Candidate) -> Candidate:
    """The candidate with estimated seconds: replicas with unequal numbers of microbatches mostly keep step."""
    context, shape = candidate.evaluation.context, candidate.shape
    if shape.divides(context.request.workload):
        return candidate
    return priced(context, shape, candidate.evaluation.classes, [candidate.pipeline], 1)[0]


def _by_classes(listing: Listing) -> dict[tuple[NodeClass, ...], list[Pipeline]]:
    """The pipelines of all tests by their classes; each pipeline holds indices into these classes."""
    classes: dict[frozenset[NodeClass], tuple[NodeClass, ...]] = {}
    found: dict[tuple[NodeClass, ...], list[Pipeline]] = {}
    for test, listed in zip(listing.tests, listing.pipelines, strict=True):
        if listed:
            order = classes.setdefault(frozenset(test.order), test.order)
            index = [order.index(option) for option in test.order]
            if index != sorted(index):
                listed = [tuple((index[i], layers) for i, layers in one) for one in listed]
            found.setdefault(order, []).extend(listed)
    return found
