"""Lower bounds on pipelines of unlike degrees whose layers are all known (`planner.bounds.unlike_degrees`).

Where each cluster of a layout has one shape, its pipelines differ in the order of the clusters, the number of stages of each
and the layers of each stage. The deadline test of an order with given numbers of stages leaves few splits of the layers. These
are listed, and each is bounded with the seconds of its own stages (`planner.bounds.whole_pipelines`), where the test counts
layers before a stage at the least seconds of any class."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from planner.bounds.deadline_test import deadline_bound
from planner.bounds.greedy_filling import Filling
from planner.bounds.listing import Layers, largest_layers, pipelines
from planner.bounds.unlike_degrees import CountedStages, Layout, SomeShapes, UnlikeStages, counted_tests
from planner.bounds.whole_pipelines import least_steps
from planner.costs.context import PlanningContext
from planner.costs.node_classes import under
from planner.costs.unlike_messages import UnlikeMessages
from sim.analytic.candidates import Floats
from sim.field_changes import changed
from sim.units import Seconds

LISTED = 20_000
"""Most pipelines with one order of the clusters and given numbers of stages that are listed (a guess): they take about 20
milliseconds. Of more, the deadline test gives the bound."""


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
    return None if layers is None else float(listed_steps(test.stages, filling.classes, layers).min(initial=math.inf))


def listed_steps(stages: UnlikeStages, classes: Sequence[int], layers: Layers) -> Floats:
    """A lower bound in seconds on the step of each pipeline with gathers before the forwards or after the optimizer, shape
    (pipelines,); classes, layers: as in `planner.bounds.whole_pipelines`."""
    return np.min([least_steps(one, classes, layers) for one in _apart(stages)], axis=0) if len(layers) else np.empty(0)


def _apart(stages: UnlikeStages) -> Iterator[UnlikeStages]:
    """Stages of one shape for each cluster under each of both orders of gathers."""
    context = stages.context
    for overlaps in (True, False):
        of_each = [changed(some.classes[0].own, overlap_param_gather=overlaps) for some in stages.layout]
        pairs = zip(stages.layout, of_each, strict=True)
        layout = tuple(SomeShapes(under(context, own, some.classes)) for some, own in pairs)
        yield UnlikeStages(context, layout, stages.unlike, stages.horizon, either=False).in_order()
