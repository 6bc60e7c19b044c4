"""Lower bounds of plans with mixed stages whose layers are given."""

from __future__ import annotations

import itertools
import random
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.certificates.fleets import draw
from planner.bounds.mixed_deadline import OpenPlacement, PlacementTest
from planner.bounds.mixed_evaluation import least_steps, least_steps_of_own
from planner.costs.context import PlanningContext
from planner.placement.ranks import assemble
from planner.placement.simulation import fits, simulate_plan, step
from planner.request import Request, Wishes
from planner.search.mixed import mixed_placements
from planner.space.device_slots import Run, StageSlots, devices
from planner.space.mixed_schedules import variants_of_mixed
from planner.space.shape import Shape
from sim.errors import Infeasible, NoRoute, NotDefined, NotModelled
from sim.hardware.cluster import Trunk
from tests import builders as make
from tests import more
from tests.planner.builders import NO_LIMIT, random_request, random_request_with_experts_or_long_sequences, request, shape
from tests.planner.targets import alike_replicas

KINDS = (draw, random_request, random_request_with_experts_or_long_sequences)
SCHEDULES = ("1f1b", "gpipe", "1f1b-deepspeed", "zb-h1", "zb-h2", "zb-latency")


def bounds(question: Request, one: Shape, placed: tuple[StageSlots, ...], *splits: tuple[int, ...]) -> list[float]:
    """Lower bounds of a shape on placed stages with splits of the layers. Raises NotModelled where no plan is placed so."""
    test = PlacementTest(PlanningContext(question))
    every = test.of_kinds(OpenPlacement(0.0, one, placed))
    (stages,) = (test.stages(found) for found in every if one.schedule in [name.NAME for name in found.schedules])
    if stages is None:
        raise NotModelled("a replica's cp ranks straddle clusters")
    assert stages.alike
    return least_steps(stages, one, splits).tolist()


def steps(question: Request, one: Shape, placed: tuple[StageSlots, ...], *splits: tuple[int, ...]) -> list[float]:
    """The simulated steps of the same plans."""
    microbatches = (question.workload.global_batch_size // one.microbatch_size // one.dp,) * one.dp
    every = (assemble(question, one, split, devices(placed, one.tp), "by hand", microbatches) for split in splits)
    return [step(simulate_plan(plan)) for plan in every]


def two_clusters(nodes: int, devices_each: int, layers: int, batch: int, nic: float, trunk: float) -> Request:
    """Clusters a and b of ideal devices with one NIC for each node, joined by a trunk, for replicas that are alike."""
    nics, spec = (make.nic("ethernet", nic),), make.device("chip", 2e9, 1e30)
    clusters = [make.cluster(name, nodes, devices_each, nics, spec) for name in "ab"]
    fleet = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", trunk, 0.0),))
    question = request(fleet, make.model(layers), batch, Wishes(schedule="1f1b", zero_stage=1))
    return replace(question, target=alike_replicas())


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zb-h1"])
def test_steps_of_replicas_that_share_no_link_are_met(schedule):
    """Three stages of a replica on each cluster, every stage on a node of its own. Gradients take a thousandth of a step, so
    that no message waits for them."""
    question = two_clusters(3, 1, 6, 8, nic=1e8, trunk=1e9)
    question = replace(question, wishes=Wishes(schedule=schedule, zero_stage=1))
    a, b = question.clusters()
    placed, splits = tuple((Run(a, i, 1), Run(b, i, 1)) for i in range(3)), ((2, 2, 2), (1, 2, 3), (4, 1, 1), (1, 4, 1))
    one = shape(dp=2, schedule=schedule)
    for least, simulated in zip(bounds(question, one, placed, *splits), steps(question, one, placed, *splits), strict=True):
        assert simulated * (1 - 1e-3) <= least <= simulated * (1 + 1e-9)


def test_a_link_carries_the_gradients_of_all_stages_that_load_it():
    """Two stages on one node of each cluster reduce gradients over one NIC of 1e5 bytes a second, which takes most of the step:
    the all-gathers of weights before the first forward of the last stage has ended, of half as many bytes, and the
    reduce-scatters behind its last backward."""
    question = two_clusters(1, 2, 4, 4, nic=1e5, trunk=1e9)
    a, b = question.clusters()
    placed, splits = tuple((Run(a, i, 1), Run(b, i, 1)) for i in (0, 1)), ((1, 3), (2, 2), (3, 1))
    one, test = shape(dp=2), PlacementTest(PlanningContext(question))
    loads = test.costs.rings.loads(one, placed)
    both = [max(sum(one.fixed + one.each * split[one.stage] for one in link) for link in loads.links) for split in splits]
    found, simulated = bounds(question, one, placed, *splits), steps(question, one, placed, *splits)
    assert np.all(np.array(both) < found) and np.all(np.array(found) <= np.array(simulated) * (1 + 1e-9))
    assert min(a / b for a, b in zip(found, simulated, strict=True)) > 0.98


def test_the_replica_with_the_longest_messages_counts(monkeypatch):
    """Stages of three slots on nodes of four: of the replicas on cluster a, the first sends inside its node, and the others
    between nodes, at the same time, over a slow NIC."""
    question = two_clusters(2, 4, 4, 64, nic=1e6, trunk=1e9)
    a, b = question.clusters()
    placed, splits = ((Run(a, 0, 3), Run(b, 0, 1)), (Run(a, 3, 3), Run(b, 1, 1))), ((2, 2), (3, 1))
    one = shape(dp=4)
    found, simulated = bounds(question, one, placed, *splits), steps(question, one, placed, *splits)
    monkeypatch.setattr("planner.bounds.mixed_evaluation.REPLICAS", 1)
    for least, first, step_s in zip(found, bounds(question, one, placed, *splits), simulated, strict=True):
        assert first < 0.96 * least and 0.93 * step_s < least <= step_s * (1 + 1e-9)


def test_bounds_above_a_limit_are_not_raised_further():
    question = two_clusters(2, 4, 4, 16, nic=1e6, trunk=1e9)
    a, b = question.clusters()
    placed, splits = ((Run(a, 0, 3), Run(b, 0, 1)), (Run(a, 3, 3), Run(b, 1, 1))), ((2, 2), (3, 1), (1, 3))
    one, test = shape(dp=4), PlacementTest(PlanningContext(question))
    stages = test.stages(test.of_kinds(OpenPlacement(0.0, one, placed))[0])
    whole = least_steps(stages, one, splits)
    for below in (0.5 * min(whole), np.median(whole), 2 * max(whole)):
        found = least_steps(stages, one, splits, below)
        assert np.all(found <= whole) and np.all((found >= below) == (whole >= below))
        assert np.all(found[whole < below] == whole[whole < below])


@pytest.mark.parametrize("schedules", [SCHEDULES[:3], SCHEDULES[3:]])
@pytest.mark.parametrize(("kind", "seed"), more.after(12, list(itertools.product(KINDS, range(40))), last=20))
def test_no_plan_takes_less(kind, seed, schedules):
    rng = random.Random(seed)
    wishes = Wishes(schedule=schedules[seed % 3], zero_stage=rng.choice([None, 0, 1]))
    question = replace(kind(seed), wishes=wishes, time_limit=NO_LIMIT, target=alike_replicas())
    placements = list(mixed_placements(question))
    rng.shuffle(placements)
    for placed_shape, placed in placements[:4]:
        if placed_shape.ep > 1:
            continue
        for one in variants_of_mixed(question, placed_shape):
            with suppress(NoRoute, NotDefined, NotModelled, Infeasible, ValueError):
                layers = _any_split(rng, question.workload.model.layers, len(placed))
                microbatches = (question.workload.global_batch_size // one.microbatch_size // one.dp,) * one.dp
                plan = assemble(question, one, layers, devices(placed, one.tp), "by hand", microbatches)
                if fits(plan):
                    (least,) = bounds(question, one, placed, layers)
                    assert least <= step(simulate_plan(plan)) * (1 + 1e-9)


def _any_split(rng: random.Random, layers: int, stages: int) -> tuple[int, ...]:
    """A random split of layers over stages, of at least one each. Raises ValueError where there are too few."""
    cuts = [0, *sorted(rng.sample(range(1, layers), stages - 1)), layers]
    return tuple(b - a for a, b in itertools.pairwise(cuts))


@pytest.mark.parametrize("schedules", [SCHEDULES[:3], SCHEDULES[3:]])
@pytest.mark.parametrize(("kind", "seed"), more.after(12, list(itertools.product(KINDS, range(100, 140))), last=20))
def test_no_plan_of_replicas_with_numbers_of_their_own_takes_less(kind, seed, schedules):
    """Any split of the layers, and of the microbatches over the replicas."""
    rng = random.Random(seed)
    wishes = Wishes(schedule=schedules[seed % 3], zero_stage=rng.choice([None, 0, 1]))
    question = replace(kind(seed), wishes=wishes, time_limit=NO_LIMIT)
    placements, test = list(mixed_placements(question)), PlacementTest(PlanningContext(question))
    rng.shuffle(placements)
    for placed_shape, placed in placements[:4]:
        every = test.of_kinds(OpenPlacement(0.0, placed_shape, placed)) if placed_shape.ep == 1 else []
        for one in variants_of_mixed(question, placed_shape):
            with suppress(NoRoute, NotDefined, NotModelled, Infeasible, ValueError):
                (stages,) = (test.stages(found) for found in every if one.schedule in [name.NAME for name in found.schedules])
                layers = _any_split(rng, question.workload.model.layers, len(placed))
                microbatches = _any_split(rng, question.workload.global_batch_size // one.microbatch_size, one.dp)
                plan = assemble(question, one, layers, devices(placed, one.tp), "by hand", microbatches)
                if fits(plan) and stages is not None and not stages.alike:
                    for most in (stages.total, max(microbatches) // 2):
                        (least,) = least_steps_of_own(stages, one, [layers], most, 1e9) if most else [0.0]
                        assert least <= step(simulate_plan(plan)) * (1 + 1e-9)


def test_replicas_on_faster_devices_take_more_microbatches():
    """Devices of `a` are three times as fast: of eight microbatches they take six, in the time of two on `b`."""
    nics = (make.nic("ethernet", 1e12),)
    clusters = [
        make.cluster(name, 1, 1, nics, make.device(f"chip-{name}", rate, 1e30)) for name, rate in (("a", 3e9), ("b", 1e9))
    ]
    machines = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 1e12, 0.0),))
    question = request(machines, make.model(4), 8, Wishes(schedule="1f1b", zero_stage=1))
    a, b = question.clusters()
    one, placed, test = shape(dp=2), ((Run(a, 0, 1), Run(b, 0, 1)),), PlacementTest(PlanningContext(question))
    (stages,) = (test.stages(found) for found in test.of_kinds(OpenPlacement(0.0, one, placed)))
    assert stages is not None and not stages.alike
    (least,) = least_steps_of_own(stages, one, [(4,)], 8, 1e9)
    plan = assemble(question, one, (4,), devices(placed, 1), "by hand", (6, 2))
    assert least == pytest.approx(step(simulate_plan(plan)), rel=1e-3) and least <= step(simulate_plan(plan)) * (1 + 1e-9)
    assert least_steps_of_own(stages, one, [(4,)], 8, 0.9 * least).tolist() == [0.9 * least]
    (few,) = least_steps_of_own(stages, one, [(4,)], 1, 1e9)
    assert few < least
