"""Lower bounds on pipelines of unlike degrees with known numbers of stages, and known layers (`planner.bounds.unlike_degrees`).

Where each cluster of a layout has one shape, its pipelines differ in the order of the clusters, the number of stages of each,
the layers of each stage, and the time at which weights are gathered. Each order is tested with each number of stages. The
deadline test then leaves few splits of the layers. These are listed, and each is bounded with the seconds of its own stages
(`planner.bounds.whole_pipelines`), where the test counts layers before a stage at the least seconds of any class."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from planner.bounds.deadline_test import deadline_bound
from planner.bounds.greedy_filling import Filling
from planner.bounds.listing import largest_layers, pipelines
from planner.bounds.node_messages import Place, most_sent
from planner.bounds.unlike_degrees import Layout, UnlikeStages, at_both_times, leaving
from planner.bounds.whole_pipelines import least_steps
from planner.costs.context import PlanningContext
from planner.costs.unlike_messages import UnlikeMessages
from planner.space import lengths
from planner.space.unlike_degrees import may_tie
from sim.units import Seconds

COUNTED = 600
"""Most orders of clusters and numbers of stages of each that are tested one by one (a guess)."""
LISTED = 20_000
"""Most pipelines with one order of the clusters and given numbers of stages that are listed (a guess): they take about 20
milliseconds. Of more, the deadline test gives the bound."""


def counted_bound(
    context: PlanningContext, layout: Layout, messages: UnlikeMessages, least: Seconds, cutoff: Seconds
) -> Seconds:
    """As `layout_bound` of one shape for each cluster, by a test of every order of the clusters with every number of stages of
    each; `least` where they are more than `COUNTED`."""
    tests = counted_tests(context, layout, messages, cutoff)
    return least if tests is None else deadline_bound(tests, least, cutoff)


def counted_tests(
    context: PlanningContext, layout: Layout, messages: UnlikeMessages, cutoff: Seconds
) -> list[CountedStages] | None:
    """The test of every order of the clusters of a layout with every number of stages of each that is allowed; None where they
    are more than `COUNTED`."""
    numbers = [range(1, min(some.max_stages, some.workload.model.layers) + 1) for some in layout]
    if math.factorial(len(layout)) * math.prod(map(len, numbers)) > COUNTED:
        return None
    tests, loads, tied = list[CountedStages](), leaving(layout, messages), layout[0].workload.model.tied_embeddings
    both = at_both_times(context, layout)
    for order, one in itertools.product(itertools.permutations(range(len(layout))), both):
        if tied and not may_tie(*(layout[order[end]].own for end in (0, -1))):
            continue
        stages = UnlikeStages(context, tuple(one[i] for i in order), messages, cutoff).in_order()
        names, limits = [cluster.name for cluster in stages.clusters], context.request.limits
        if stages.possible and limits.allows_ends(names[0], names[-1]) and limits.uses_enough(names):
            own = tuple(loads[i] for i in order)
            tests += (CountedStages(stages, some, own) for some in itertools.product(*(numbers[i] for i in order)))
    return [test for test in tests if test.is_allowed]


def listed_bound(
    context: PlanningContext, layout: Layout, messages: UnlikeMessages, least: Seconds, cutoff: Seconds
) -> Seconds:
    """A lower bound in seconds on pipelines with a stage on each cluster of a layout of one shape for each: at least `least`,
    and at most the larger of `least` and `cutoff`."""
    tests, found = counted_tests(context, layout, messages, cutoff), max(least, cutoff)
    if tests is None:
        return least
    for test in tests:
        if found <= least:
            break
        if test.within(found):
            steps = _least_step(test, found)
            found = deadline_bound([test], least, found) if steps is None else max(least, min(found, steps))
    return found


def _least_step(test: CountedStages, seconds: Seconds) -> Seconds | None:
    """The least bound of all pipelines of a test that may finish within some seconds; infinite where none does, and None where
    they are too many to list."""
    filling = Filling(test.stages, seconds, list(test.counts), sum(test.counts))
    largest = largest_layers(filling)
    if largest is None:
        return math.inf
    layers = pipelines(filling, largest, LISTED)
    if layers is None or not len(layers):
        return None if layers is None else math.inf
    return float(least_steps(test.stages, filling.classes, layers).min())


@dataclass(frozen=True, slots=True)
class CountedStages:
    """The deadline test of pipelines with given numbers of stages of each class, in the order of `stages`."""

    stages: UnlikeStages
    counts: tuple[int, ...]
    leaving: tuple[Seconds, ...]

    @property
    def sent(self) -> Seconds:
        """Least seconds of the NICs of any node for its messages."""
        last = len(self.counts) - 1
        each = enumerate(zip(self.counts, self.stages.layout, self.leaving, strict=True))
        sent = (load * most_sent(*some.on_nodes, stages, Place(i > 0, i < last)) for i, (stages, some, load) in each)
        return self.stages.m * max(sent)

    @property
    def is_allowed(self) -> bool:
        """Whether the schedule is defined for so many stages, and the target, pins and limits of the request allow them."""
        stages, pp, last = self.stages, sum(self.counts), len(self.counts) - 1
        each = enumerate(zip(stages.layout, self.counts, strict=True))
        if not all(some.takes(count, i == last) for i, (some, count) in each):
            return False
        defined = pp <= stages.layers and stages.shape.is_defined(stages.m, pp)
        return defined and lengths.allows(stages.context.request, stages.shape, pp)

    def within(self, seconds: Seconds) -> bool:
        """Whether some pipeline might finish within `seconds` (False is a proof that none does)."""
        if self.sent > seconds:
            return False
        most = self.stages.most_by_compute(seconds)
        if not all(most) or sum(count * one for count, one in zip(self.counts, most, strict=True)) < self.stages.layers:
            return False
        return Filling(self.stages, seconds, list(self.counts), sum(self.counts)).succeeds()
