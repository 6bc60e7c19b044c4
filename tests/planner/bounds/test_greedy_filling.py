"""The greedy filling: what a stage needs at least before and after its own work."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import pytest

from planner.bounds.any_order import SubsetFilling
from planner.bounds.greedy_filling import Filling
from planner.bounds.kind_filling import KindFilling, kinds_of
from planner.bounds.listing import Layers, largest_layers, pipelines
from planner.bounds.ordered_stages import OrderedStages
from planner.bounds.stage_sizes import StageSeconds
from planner.bounds.whole_pipelines import least_steps
from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes
from planner.space.shape import Shape
from sim.plan.round_trips import RoundTrips
from tests.more import after
from tests.planner.builders import long_pipelines


def filling(
    begin: float, deadline: float, trips: tuple[RoundTrips, ...] = (), border: float = 0.0, returns: RoundTrips | None = None
) -> Filling:
    """Eight layers over three classes, the last of which holds a stage of four and may begin at `begin`.

    A layer takes (forward, gradients of inputs) = (1, 2) on the first class and (2, 0.5) on the second. A message takes
    `border` seconds."""
    rank = {"forward": 1.0, "inputs": 1.0, "weight": 0.0, "trip": 2.0}
    size = StageSeconds(begin=begin, own=8.0, both=begin + 8.0, busy=7.0, lane=0.0, tail=1.0, **rank)
    sizes = SimpleNamespace(envelope=lambda layers: size, exact=lambda layers: size)
    stages = SimpleNamespace(
        layers=8, vpp=1, borders=[border, border], messages=[0.0, 0.0, 0.0], waits=False, splits=False,
        order=(0, 1, 2), rates=[(1.0, 3.0, 2.0), (2.0, 2.5, 0.5), (9.0, 18.0, 9.0)], first_tail=0.0, whole_chunks=True,
        most_by_compute=lambda seconds: [4, 4, 4], sizes=lambda i, role, after, pp, sends: sizes, back=lambda i: 0.0,
        round_trips=lambda stage, stages: trips, hops=lambda classes: [border, border], both=lambda classes: [0.0] * 3,
        sending=lambda *known: known, first_return=lambda stage, stages: returns,
    )  # fmt: skip
    stages.before = OrderedStages.before.func(stages)
    return Filling(stages, deadline, [1, 1, 1], 3)


@pytest.mark.parametrize(("begin", "least"), [(0.0, 4 * 2.5 + 7.0), (100.0, 100.0 + 7.0 + 4 * 0.5)])
def test_the_way_back_takes_the_least_gradients_of_inputs(begin, least):
    """Behind late gathers, all layers before may be on the class with the least gradients of inputs and slow forwards."""
    assert filling(begin, max(least, begin + 8.0) * (1 + 1e-9)).feasible(2, "last", 4, 8, 0)
    assert not filling(begin, max(least, begin + 8.0) * (1 - 1e-9)).feasible(2, "last", 4, 8, 0)


def test_a_rank_waits_for_the_round_trips_of_its_microbatches():
    """The first of three stages, with a trip of 2 (own) + 4 (stages behind) + 4 x 5 (messages) = 26 seconds."""
    trips = RoundTrips(0, 3, 3, 0), RoundTrips(2, 1, 0, 0)
    least = 26 + 2 * 26 + 1
    assert filling(0.0, least, trips, 5.0).room(0, "first", 4, 4, 2, True) >= 4.0
    assert filling(0.0, least * (1 - 1e-9), trips, 5.0).room(0, "first", 4, 4, 2, True) < 4.0


def test_without_the_stages_behind_a_trip_takes_the_least_rate_of_their_layers():
    """Four layers behind the first stage take at least 2.5 seconds each, on the second class."""
    least = (2 + 4 * 2.5 + 4 * 5) * 3 + 1
    assert filling(0.0, least, (RoundTrips(2, 1, 0, 0),), 5.0).feasible(0, "first", 4, 4, 2)
    assert not filling(0.0, least * (1 - 1e-9), (RoundTrips(2, 1, 0, 0),), 5.0).feasible(0, "first", 4, 4, 2)


def test_a_tail_follows_all_steps_after_the_first_return():
    """The first of three stages: a trip of 26 seconds, three forwards and two backwards of 1 after it, and its tail of 1."""
    least, returns = 26 + 3 + 2 + 1, RoundTrips(1, 3, 2, 0)
    assert filling(0.0, least, (), 5.0, returns).room(0, "first", 4, 4, 2, True) >= 4.0
    assert filling(0.0, least * (1 - 1e-9), (), 5.0, returns).room(0, "first", 4, 4, 2, True) < 4.0


def improved(stages: OrderedStages, classes: list[int], layers: list[int]) -> tuple[float, list[int]]:
    """(least seconds, layers) after layers have moved between two stages as long as that makes the least step shorter."""
    pp, best = len(classes), np.inf
    moves = np.array([(a, b) for a in range(pp) for b in range(pp)])
    while True:
        every: Layers = np.tile(np.array(layers), (len(moves), 1))
        np.subtract.at(every, (np.arange(len(moves)), moves[:, 0]), 1)
        np.add.at(every, (np.arange(len(moves)), moves[:, 1]), 1)
        every = every[every.min(axis=1) >= stages.vpp]
        steps = least_steps(stages, classes, every)
        if steps.min() >= best:
            return best, layers
        best, layers = float(steps.min()), every[steps.argmin()].tolist()


@pytest.mark.parametrize("seed", after(12, range(100), last=40))
def test_no_test_rules_out_a_pipeline_within_its_least_seconds(seed):
    """Of many stages on slow networks, where the round trips of a microbatch decide: stages behind that hold as many layers as
    they can leave an early stage no time for one."""
    rng, question = random.Random(seed), long_pipelines(seed)
    context = PlanningContext(question)
    for schedule, vpp in (("1f1b", 1), ("zb-h1", 1), ("zb-h2", 1), ("gpipe", 1), ("interleaved", 2), ("interleaved", 3)):
        order = node_classes(context, Shape(1, 1, 1, "none", schedule, vpp, 1))
        rng.shuffle(order)
        stages = OrderedStages(context, order)
        most = max(stages.layers // len(order) // vpp, 2)
        counts = [rng.randint(1 if len(order) > 1 else 2, min(option.max_stages, most)) for option in order]
        classes, pp = [i for i, count in enumerate(counts) for _ in range(count)], sum(counts)
        if not stages.shape.is_defined(stages.m, pp) or pp * vpp > stages.layers:
            continue
        start = [stages.layers // pp + (stage < stages.layers % pp) for stage in range(pp)]
        least, layers = improved(stages, classes, start)
        seconds = least * (1 + 1e-9)
        exact = Filling(stages, seconds, counts, pp)
        assert exact.succeeds()
        assert Filling(stages, seconds, stages.max_stages, None).succeeds()
        if len(order) > 1:
            anyhow = OrderedStages(context, order).in_any_order()
            assert SubsetFilling(anyhow, seconds).succeeds()
            assert KindFilling(anyhow, seconds, pp, kinds_of(anyhow)).succeeds()
        largest = largest_layers(exact)
        assert largest is not None
        listed = pipelines(exact, largest, 20_000)
        assert listed is None or layers in listed.tolist()
