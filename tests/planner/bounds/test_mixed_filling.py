"""Layers that mixed stages may hold before a deadline, on fleets whose seconds are known by hand."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

from planner.bounds import mixed_filling, mixed_splits
from planner.bounds.mixed_deadline import mixed_bound
from planner.bounds.mixed_filling import PlacedStages
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


def three_stages(latency: float = 0.0) -> tuple[Request, tuple[StageSlots, ...]]:
    """Stages of two replicas, of which the third has one on each cluster: nodes of two devices, Ethernet of 1e5 bytes a
    second."""
    nics = (make.nic("ethernet", 1e5),)
    clusters = [
        make.cluster(name, nodes, 2, nics, make.device(f"chip-{name}", 2e11, 1e30)) for name, nodes in (("a", 3), ("b", 1))
    ]
    fleet = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 1e6, latency),))
    question = request(fleet, make.model(4), 16, Wishes())
    a, b = question.clusters()
    return question, ((Run(a, 0, 2),), (Run(a, 2, 2),), (Run(a, 4, 1), Run(b, 0, 1)))


def test_messages_that_ranks_wait_for_are_part_of_fill_and_cycle():
    """Two messages bring the first microbatch to the last stage, and three of each group its gradient from the stage before
    back to the first. A message is 0.123 s alone on its NIC, and each replica is in a group of its own."""
    message = 64 * 96 * 2 / 1e5
    question, placed = three_stages()
    stages = PlacedStages(MixedStageCosts(PlanningContext(question)), shape(dp=2), placed, [schedules.get("1f1b")])
    for first, middle, last in stages.groups:
        found = [first.sent, middle.sent, last.sent, last.back, last.arrived, last.drained]
        assert found == pytest.approx([message * count for count in (1, 2, 1, 1, 2, 3)])
        assert (first.back, first.arrived, first.drained, last.lane) == (0, 0, 0, 0)


def test_messages_behind_compute_load_links():
    """Under a schedule that overlaps messages, stage 1 sends one ahead and one back over its NIC. The first forward waits for
    its message all the same, and so does the first stage for the last gradient."""
    question, placed = three_stages()
    stages = PlacedStages(MixedStageCosts(PlanningContext(question)), shape(dp=2), placed, [schedules.get("zb-h1")])
    for _, middle, _ in stages.groups:
        message = 64 * 96 * 2 / 1e5
        assert (middle.sent, middle.back) == (0, 0)
        assert [middle.arrived, middle.drained] == pytest.approx([message, 2 * message])
        assert middle.lane > 0


def test_stages_behind_a_link_wait_for_its_gathers_and_leave_time_for_its_reductions():
    """Stages 0 and 1 are on one node of each cluster, stages 2 and 3 on another. Those behind have their microbatches between
    all gathers and all reductions of the first two."""
    nics, spec = (make.nic("ethernet", 1e5),), make.device("chip", 1e8, 1e30)
    a, b = (make.cluster(name, 2, 2, nics, spec, intra_node=make.wire(bandwidth=1e12)) for name in "ab")
    fleet = make.fleet(a, b, trunks=(Trunk(("a", "b"), "ethernet", 1e9, 0.0),))
    question = request(fleet, make.model(6), 16, Wishes(schedule="1f1b", zero_stage=1))
    context, one = PlanningContext(question), shape(dp=2)
    placed = tuple((Run(a, i, 1), Run(b, i, 1)) for i in range(4))
    costs, bound = MixedStageCosts(context), mixed_bound(context, [(one, placed)], 1e9, context.limit).seconds
    assert bound is not None

    def behind(layers: tuple[int, ...]) -> float:
        """Seconds of stages 2 and 3 with a link's gathers and reductions before and after."""
        linear = [costs.own_seconds(one, Run(a, i, 1), (i == 0, i == 3)) for i in range(4)]
        cycles = [start + k * each for k, (start, each) in zip(layers, linear, strict=True)]
        shared = costs.rings.loads(one, placed).seconds(1, layers)
        return shared + max(8 * cycles[2], cycles[2] + 8 * cycles[3])

    splits = [layers for layers in itertools.product(range(1, 4), repeat=4) if sum(layers) == 6]
    assert bound >= min(map(behind, splits)) * (1 - 2e-3)
    steps = {}
    for layers in splits:
        plan = assemble(question, one, layers, devices(placed, 1), "by hand", (8, 8))
        steps[layers] = step(simulate_plan(plan))
    assert bound <= min(steps.values()) * (1 + 1e-9)
    assert bound >= 0.8 * min(steps.values()), "gradients and weights of two stages are counted"
    assert math.isfinite(bound)


def test_stages_behind_slow_gradients_wait_for_them(monkeypatch):
    """The first stage is on two clusters far apart. The last one computes between its gathers and its reductions."""
    question, (third, second, first) = three_stages(1.0)
    placed, microbatches = (first, second, third), 4
    question = replace(question, target=alike_replicas(), wishes=Wishes(schedule="1f1b", zero_stage=1))
    context, one = PlanningContext(question), shape(dp=2, microbatch_size=2)
    stages = PlacedStages(MixedStageCosts(context), one, placed, [schedules.get("1f1b")])
    begin, tail, _ = stages.around(0, 1)
    assert begin + tail > 10 * max(sum(stages.around(stage, 1)[:2]) for stage in (1, 2))
    last = stages.groups[0][2]
    least = begin + tail + last.drained + microbatches * (last.start + last.each + last.sent)
    bound = mixed_bound(context, [(one, placed)], 1e9, context.limit).seconds
    steps = [
        step(simulate_plan(assemble(question, one, split, devices(placed, 1), "by hand", (microbatches,) * 2)))
        for split in itertools.product((1, 2), repeat=3)
        if sum(split) == 4
    ]
    assert least <= bound * (1 + 1e-3) and bound <= min(steps)
    monkeypatch.setattr(mixed_filling, "_slow", lambda stages, most: iter(()))
    monkeypatch.setattr(mixed_splits, "SIZE", 0)
    assert mixed_bound(context, [(one, placed)], 1e9, context.limit).seconds < 0.95 * bound


def test_replicas_that_are_alike_hold_their_microbatches_in_flight():
    """Memory for eight layers beside one microbatch: the first of three stages holds three of them under 1F1B."""
    question, placed = three_stages()
    costs = MixedStageCosts(PlanningContext(question))
    unlike = PlacedStages(costs, shape(dp=2), placed, [schedules.get("1f1b")])
    costs = MixedStageCosts(PlanningContext(replace(question, target=alike_replicas())))
    alike = PlacedStages(costs, shape(dp=2), placed, [schedules.get("1f1b")])
    for stage in range(3):
        assert unlike.most_by_memory(stage) == costs.most(shape(dp=2), placed[stage], stage, 3, 1)
        assert alike.most_by_memory(stage) == costs.most(shape(dp=2), placed[stage], stage, 3, 8)
    assert alike.most_by_memory(0) < unlike.most_by_memory(0)
