"""Layers of the stages of a placement by the paths of a step, against simulated plans of all splits."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from planner.bounds import mixed_splits
from planner.bounds.mixed_deadline import PlacementTest
from planner.bounds.mixed_filling import PlacedStages
from planner.bounds.mixed_paths import Paths, allowed_layers, size_of
from planner.bounds.mixed_splits import some_split_holds
from planner.bounds.placed_deadline import DeadlineOf
from planner.costs.context import PlanningContext
from planner.costs.mixed_stages import MixedStageCosts
from planner.placement.ranks import assemble
from planner.placement.simulation import fits, simulate_plan, step
from planner.request import Request, Wishes
from planner.search.mixed import mixed_placements
from planner.space.device_slots import Run, StageSlots, devices
from planner.space.mixed_schedules import playable_variants
from planner.space.shape import Shape
from sim.errors import NoRoute, NotDefined, NotModelled
from sim.hardware.cluster import Trunk
from sim.plan import schedules
from sim.units import Seconds
from tests import builders as make
from tests.planner.builders import NO_LIMIT, random_request, request, shape
from tests.planner.targets import alike_replicas

MICROBATCHES = 8
ONE = shape(dp=2, zero_stage=1)


def slow_inner_stage(which: int) -> tuple[Request, tuple[StageSlots, ...]]:
    """Four stages of two replicas, one of which is on two clusters far apart, so that its gathers and reductions take long."""
    nics, spec = (make.nic("ethernet", 1e6),), make.device("chip", 2e7, 1e30)
    clusters = [make.cluster(name, 8, 1, nics, spec) for name in "ab"]
    fleet = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 3e4, 0.0),))
    question = request(fleet, make.model(6), 2 * MICROBATCHES, Wishes(schedule="1f1b", zero_stage=1))
    a, b = question.clusters()
    placed = tuple((Run(a, 2 * i, 1), Run(b, i, 1)) if i == which else (Run(a, 2 * i, 2),) for i in range(4))
    return replace(question, target=alike_replicas()), placed


def steps_of(question: Request, one: Shape, placed: tuple[StageSlots, ...], layers: int) -> dict[tuple[int, ...], Seconds]:
    """The simulated step of each split of the layers that fits memory."""
    found, stages = dict[tuple[int, ...], Seconds](), len(placed)
    many = question.workload.global_batch_size // one.microbatch_size // one.dp
    for split in itertools.product(range(1, layers - stages + 2), repeat=stages):
        if sum(split) == layers:
            plan = assemble(question, one, split, devices(placed, one.tp), "by hand", (many,) * one.dp)
            if fits(plan):
                found[split] = step(simulate_plan(plan))
    return found


def walked(held: list[dict[int, list[int]]], layers: int) -> set[tuple[int, ...]]:
    """The splits that the allowed layers of the stages leave."""
    found = {(): layers}
    for sizes in reversed(held):
        found = {(k, *split): left - k for split, left in found.items() for k in sizes.get(left, ())}
    return {split for split, left in found.items() if not left}


@pytest.mark.parametrize("which", range(4))
def test_stages_wait_for_the_gathers_and_reductions_of_one_of_them(which, monkeypatch):
    """Paths rule out 0.97 of the fastest step, wherever the slow stage is; the filling of stages by themselves does not."""
    question, placed = slow_inner_stage(which)
    least = min(steps_of(question, ONE, placed, 6).values())
    stages = PlacedStages(MixedStageCosts(PlanningContext(question)), ONE, placed, [schedules.get("1f1b")])
    begin, tail, _ = stages.around(which, 1)
    assert begin + tail > 0.15 * least
    assert some_split_holds(stages, least, 0.3)
    assert not some_split_holds(stages, 0.97 * least, 0.3)
    monkeypatch.setattr(mixed_splits, "SIZE", 0)
    assert some_split_holds(stages, 0.97 * least, 0.3) and stages.within(0.97 * least, 0.3)


def test_waits_of_stages_of_deepspeed_depend_on_the_layers_of_their_neighbours(monkeypatch):
    """Two messages that arrive over one NIC rule out 0.88 of the fastest step where the layers of the next stage are known."""
    nics, spec = (make.nic("ethernet", 1e6),), make.device("chip", 5e9, 1e30)
    clusters = [make.cluster(name, 8, 1, nics, spec) for name in "ab"]
    fleet = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 1e9, 0.0),))
    question = request(fleet, make.model(8), 32, Wishes(schedule="1f1b-deepspeed", zero_stage=1))
    question, (a, b) = replace(question, target=alike_replicas()), question.clusters()
    one, placed = replace(ONE, schedule="1f1b-deepspeed"), tuple((Run(a, i, 1), Run(b, i, 1)) for i in range(5))
    least = min(steps_of(question, one, placed, 8).values())
    stages = PlacedStages(MixedStageCosts(PlanningContext(question)), one, placed, [schedules.get("1f1b-deepspeed")])
    assert some_split_holds(stages, least, 0.3)
    assert not some_split_holds(stages, 0.88 * least, 0.3)
    monkeypatch.setattr(Paths, "by_neighbours", lambda self: None)
    assert some_split_holds(stages, 0.88 * least, 0.3)


def test_the_size_counts_layers_of_all_stages():
    question, placed = slow_inner_stage(1)
    stages = PlacedStages(MixedStageCosts(PlanningContext(question)), ONE, placed, [schedules.get("1f1b")])
    assert len(stages.groups) == 2
    assert size_of(stages, [2, 2, 2, 1]) == 2 * 7 * 2  # one or two layers fewer than all stages may have


ALIKE, OWN = (0, 3, 5, 9, 10, 12, 13, 14, 17, 21, 22, 28), (10, 24, 27, 31, 46)
"""Seeds of requests that have placements of several stages; of the latter, whose replicas may have numbers of their own."""


@pytest.mark.parametrize(("seed", "alike"), [*((seed, True) for seed in ALIKE), *((seed, False) for seed in OWN)])
def test_no_split_that_finishes_in_time_is_dropped(seed, alike):
    """Every split that finishes within the fastest step and within the median of drawn placements is left, also where replicas
    may have numbers of microbatches of their own."""
    name = ("1f1b", "zb-h1", "gpipe", "zb-h2")[seed % 4]
    question = replace(
        random_request(seed),
        wishes=Wishes(schedule=name, zero_stage=seed % 2),
        time_limit=NO_LIMIT,
        target=alike_replicas() if alike else None,
    )
    context, layers = PlanningContext(question), question.workload.model.layers
    test, tried, compared = PlacementTest(context), 0, 0
    for one, placed in mixed_placements(question):
        if not 1 < len(placed) <= layers or layers > 7 or tried == 2:
            continue
        tried += 1
        for variant in playable_variants(question, one, True):
            stages = PlacedStages(test.costs, variant, placed, [schedules.get(variant.schedule)])
            if stages.total % variant.dp:
                continue
            try:
                steps = steps_of(question, variant, placed, layers)
            except (NoRoute, NotDefined, NotModelled):
                continue
            assert alike or not stages.alike
            compared += len(steps)
            for seconds in np.quantile(list(steps.values()), (0, 0.5)) if steps else ():
                most = stages.most_within(seconds, test.forward_share(variant))
                assert most is not None
                left = walked(allowed_layers(stages, DeadlineOf(seconds, test.forward_share(variant), most)), layers)
                assert {split for split, took in steps.items() if took <= seconds} <= left
    assert compared > 1
