"""Splits of the layers of a placement, on fleets whose seconds are known by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from planner.bounds import mixed_splits
from planner.bounds.mixed_deadline import mixed_bound
from planner.bounds.mixed_filling import PlacedStages
from planner.bounds.mixed_splits import some_split_holds, splits
from planner.bounds.path_stages import microbatches_between
from planner.bounds.placed_deadline import DeadlineOf, OfSize
from planner.costs.context import PlanningContext
from planner.costs.mixed_stages import MixedStageCosts
from planner.placement.ranks import assemble
from planner.placement.simulation import simulate_plan, step
from planner.request import Request, Wishes
from planner.space.device_slots import Run, StageSlots, devices
from sim.hardware.cluster import Trunk
from sim.plan import schedules
from tests import builders as make
from tests.planner.builders import request, shape
from tests.planner.targets import alike_replicas

MESSAGE = 64 * 96 * 2 / 1e5
"""Seconds of a message between two nodes."""
ONE, MICROBATCHES = shape(dp=2, zero_stage=0), 8


def four_stages(
    layers: int, batch: int = 2 * MICROBATCHES, speed: float = 2e9, schedule: str = "1f1b"
) -> tuple[Request, tuple[StageSlots, ...]]:
    """Four stages of two replicas, each on nodes of a cluster of its own, for a target whose replicas are alike."""
    nics, spec = (make.nic("ethernet", 1e5),), make.device("chip", speed, 1e30)
    clusters = [make.cluster(name, 4, 1, nics, spec) for name in "ab"]
    fleet = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 1e9, 0.0),))
    question = request(fleet, make.model(layers), batch, Wishes(schedule=schedule, zero_stage=0))
    a, b = question.clusters()
    return replace(question, target=alike_replicas()), tuple((Run(a, i, 1), Run(b, i, 1)) for i in range(4))


def seconds_of_round_trips(question: Request, placed: tuple[StageSlots, ...], layers: tuple[int, ...]) -> float:
    """The first backward of stage 0 follows a round trip over three borders, and so does the last one after the last of four
    forwards that have no backward before them."""
    costs = MixedStageCosts(PlanningContext(question))
    passes = [costs.own_passes(ONE, placed[i][0], (i == 0, i == 3)) for i in range(4)]
    (forward, backward), *behind = [[s + k * c for s, c in way] for k, way in zip(layers, passes, strict=True)]
    trip = 6 * MESSAGE + sum(map(sum, behind))
    between = (MICROBATCHES - 4) * (forward + backward + MESSAGE)  # stage 0 sends ahead only
    return forward + trip + between - MESSAGE + trip + backward


def test_the_first_stage_waits_for_two_round_trips():
    question, placed = four_stages(5)
    context = PlanningContext(question)
    bound = mixed_bound(context, [(ONE, placed)], 1e9, context.limit).seconds
    splits = [split for split in itertools.product((1, 2), repeat=4) if sum(split) == 5]
    least = min(seconds_of_round_trips(question, placed, split) for split in splits)
    steps = [
        step(simulate_plan(assemble(question, ONE, split, devices(placed, 1), "by hand", (MICROBATCHES,) * 2)))
        for split in splits
    ]
    assert bound is not None
    assert least * (1 - 2e-3) <= bound <= min(steps)


@pytest.mark.parametrize("most", [mixed_splits.SIZE, 0])
def test_stages_of_deepspeed_wait_for_the_activations_that_others_hold(most, monkeypatch):
    """Stage 2 of four waits for two messages of its fill, 16 of its own, six that stage 1 holds, and two of its drain, of which
    one is its own last; both tests of splits know that."""
    monkeypatch.setattr(mixed_splits, "SIZE", most)
    question, placed = four_stages(5, speed=2e12, schedule="1f1b-deepspeed")
    one, context = replace(ONE, schedule="1f1b-deepspeed"), PlanningContext(question)
    bound = mixed_bound(context, [(one, placed)], 1e9, context.limit).seconds
    splits = [split for split in itertools.product((1, 2), repeat=4) if sum(split) == 5]
    plans = [assemble(question, one, split, devices(placed, 1), "by hand", (MICROBATCHES,) * 2) for split in splits]
    least = min(step(simulate_plan(plan)) for plan in plans)
    assert bound is not None
    assert (2 + 16 + 6 + 2 - 1) * MESSAGE * (1 - 2e-3) <= bound <= least


@pytest.mark.parametrize(("batch", "counted"), [(16, True), (8, False), (6, False)])
def test_round_trips_count_where_a_backward_is_before_the_last_forward(batch, counted):
    """With four microbatches or fewer, stage 0 has all forwards before its first backward, and one round trip only."""
    question, placed = four_stages(4, batch)
    stages = PlacedStages(MixedStageCosts(PlanningContext(question)), ONE, placed, [schedules.get("1f1b")])
    found = [microbatches_between("1f1b", stage, 4, batch // 2) for stage in range(4)]
    assert (found[0] > 0) == counted
    assert stages.alike and some_split_holds(stages, 1e9, 0.3)


def test_splits_of_many_layers_are_not_tried(monkeypatch):
    question, placed = four_stages(5, speed=2e7)
    stages = PlacedStages(MixedStageCosts(PlanningContext(question)), ONE, placed, [schedules.get("1f1b")])
    plan = assemble(question, ONE, (1, 2, 1, 1), devices(placed, 1), "by hand", (MICROBATCHES,) * 2)
    seconds = step(simulate_plan(plan)) * 0.96
    assert not some_split_holds(stages, seconds, 0.3)
    monkeypatch.setattr(mixed_splits, "SIZE", 0)
    assert not some_split_holds(stages, seconds, 0.3)
    monkeypatch.setattr(mixed_splits, "WORK", 0)
    assert some_split_holds(stages, seconds, 0.3)


@pytest.mark.parametrize("target", [alike_replicas(), None])
def test_all_backwards_of_a_stage_follow_its_first_round_trip(target):
    """Two microbatches, a schedule that puts weight gradients off: the first stage has both backwards and the sum of its
    gradients after a round trip. The bound without round trips is lower."""
    question, placed = four_stages(5, 4, 2e7)
    question = replace(question, target=target, wishes=Wishes(schedule="zb-h1", zero_stage=0))
    one, context = replace(ONE, schedule="zb-h1"), PlanningContext(question)
    stages = PlacedStages(MixedStageCosts(context), one, placed, [schedules.get("zb-h1")])
    passes = [stages.costs.own_passes(one, placed[i][0], (i == 0, i == 3)) for i in range(4)]
    least, steps = [], []
    for split in (split for split in itertools.product((1, 2), repeat=4) if sum(split) == 5):
        (forward, backward), *behind = [[s + k * c for s, c in way] for k, way in zip(split, passes, strict=True)]
        trip = 6 * MESSAGE + sum(map(sum, behind)) * stages.inputs
        least.append(forward + trip + 2 * backward + stages.around(0, split[0])[1])
        plan = assemble(question, one, split, devices(placed, 1), "by hand", (2, 2))
        steps.append(step(simulate_plan(plan)))
    bound = mixed_bound(context, [(one, placed)], 1e9, context.limit).seconds
    assert stages.alike == (target is not None)
    assert min(least) * (1 - 2e-3) <= bound <= min(steps)
    assert stages.within(0.95 * bound, 0.3)


def test_splits_that_might_finish_are_listed():
    """Those of plans that finish in time are among them; none where no split holds, or more than may be listed."""
    question, placed = four_stages(7)
    stages = PlacedStages(MixedStageCosts(PlanningContext(question)), ONE, placed, [schedules.get("1f1b")])
    every = [split for split in itertools.product(range(1, 5), repeat=4) if sum(split) == 7]
    steps = {
        split: step(simulate_plan(assemble(question, ONE, split, devices(placed, 1), "by hand", (MICROBATCHES,) * 2)))
        for split in every
    }
    seconds = sorted(steps.values())[4]
    found = splits(stages, seconds, 0.3, 100)
    assert {split for split, one in steps.items() if one <= seconds} <= set(found) < set(every)
    assert splits(stages, seconds, 0.3, len(found) - 1) is None
    assert sorted(splits(stages, 1e9, 0.3, 100)) == every
    assert splits(stages, 1e-9, 0.3, 100) == [] and not some_split_holds(stages, 1e-9, 0.3)


def test_forwards_and_backwards_behind_the_first_round_trip_wait_for_their_messages():
    """Stage 1 of four under 1F1B: five forwards and eight backwards, whose messages it waits for, and the first stage for the
    last of them. Before, it waits for the first stage, and for a round trip over two borders."""
    question, placed = four_stages(4)
    stages = PlacedStages(MixedStageCosts(PlanningContext(question)), ONE, placed, [schedules.get("1f1b")])
    test = DeadlineOf(1e9, 1.0, [1] * 4)
    trips = mixed_splits._Trips(stages, stages.groups[0], stages.each[0], OfSize(1, 1, 1), test)
    (first, _), (own, backward), *behind = [
        [s + c for s, c in stages.costs.own_passes(ONE, placed[i][0], (i == 0, i == 3))] for i in range(4)
    ]
    one_layer = stages.groups[0][0].each  # of the first stage, without its embedding
    alone = MESSAGE + one_layer + own + 4 * MESSAGE + sum(map(sum, behind)) + 5 * own + 8 * backward
    assert first < one_layer
    assert trips.after_one(5, 8) == pytest.approx(alone + (5 + 7) * MESSAGE + MESSAGE)
