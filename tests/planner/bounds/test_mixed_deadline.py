"""Bounds of plans with mixed stages."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace

import pytest

from benchmarks.certificates.fleets import draw
from planner.bounds.mixed_deadline import mixed_bound
from planner.bounds.total_work import Work, work_bound
from planner.costs.context import PlanningContext
from planner.costs.mixed_stages import MixedStageCosts
from planner.placement.ranks import assemble
from planner.placement.simulation import fits, simulate_plan, step
from planner.request import Wishes
from planner.search.mixed import is_mixed, mixed, mixed_placements
from planner.search.mixed_candidates import MixedCandidate, candidate
from planner.space.device_slots import Run, devices
from planner.space.mixed_schedules import variants_of_mixed
from planner.time_limit import TimeLimit
from sim.errors import Infeasible, NoRoute, NotDefined, NotModelled
from sim.hardware.cluster import Trunk
from tests import builders as make
from tests import more
from tests.planner.builders import NO_LIMIT, random_request, random_request_with_experts_or_long_sequences, request, shape
from tests.planner.targets import alike_replicas

KINDS = (draw, random_request, random_request_with_experts_or_long_sequences)


class SecondsLeft(TimeLimit):
    """A limit that is up when it is asked for the given time."""

    def __init__(self, times: int):
        super().__init__(NO_LIMIT)
        self.left = times

    def is_up(self) -> bool:
        self.left -= 1
        return self.left <= 0


def test_total_work_bounds_the_placements_that_are_left_when_the_time_is_up():
    """The later the time is up, the higher the bound, which is never above the one without a limit."""
    question = random_request(11)
    context = PlanningContext(question)
    work, placements = Work(context), list(mixed_placements(question))
    by_work = sorted(work.bound(one) for one, _ in placements)
    found = [mixed_bound(context, placements, 1e9, SecondsLeft(times)) for times in (1, 3, 6, 10**9)]
    whole = mixed_bound(context, placements, 1e9, context.limit).seconds
    assert found[0].seconds == by_work[0] < whole
    assert work.bound(found[0].holders[0][0]) == by_work[0]
    assert [one.seconds for one in found] == sorted(one.seconds for one in found)
    assert found[-1].seconds == whole


@pytest.mark.parametrize("seed", more.after(4, range(12)))
@pytest.mark.parametrize("kind", KINDS[1:])
def test_bounds_of_mixed_stages_hold_and_the_closer_one_is_closer(kind, seed):
    question = kind(seed)
    context = PlanningContext(question)
    bound, closer = work_bound(context), mixed_bound(context, mixed_placements(question), 1e9, context.limit).seconds
    assert bound <= closer * (1 + 2e-3)  # it is sought to that share
    for _, plan in mixed(context, "by hand", context.limit):
        assert is_mixed(plan)
        assert max(bound, closer) <= step(simulate_plan(plan)) * (1 + 1e-9)
        assert sum(plan.config.num_microbatches) == question.workload.global_batch_size


WAITING, SPLITTING = ("1f1b", "gpipe", "1f1b-deepspeed"), ("zb-h1", "zb-h2", "zb-latency")
LAW = [
    *((draw, seed, None) for seed in (11, 1000)),
    *((draw, 5, 0), (random_request, 51, 0), (draw, 367, 0)),
    *((draw, seed, None) for seed in (1002, 1080)),
    *((kind, seed, zero_stage) for seed in range(18) for kind in KINDS for zero_stage in (None, 0)),
]


@pytest.mark.parametrize("target", [None, alike_replicas()], ids=["unlike", "alike"])
@pytest.mark.parametrize("schedules", [WAITING, SPLITTING])
@pytest.mark.parametrize(("kind", "seed", "zero_stage"), more.after(4, LAW, last=24))
def test_the_bound_of_each_placement_holds_for_any_layers_and_microbatches(kind, seed, zero_stage, schedules, target):
    """On fleets 11, 1000, 1002 and 1080 of `draw`, the bound of a single stage was up to 28 % too high: a weight gradient alone
    hid its reductions, as where a schedule splits the backward. On fleet 5 and on 51, reductions waited for the last message,
    and on 367 a tail was that of other devices."""
    wishes = Wishes(schedule=schedules[seed % 3], zero_stage=zero_stage)
    question = replace(kind(seed), wishes=wishes, time_limit=NO_LIMIT, target=target)
    context, placements, rng = PlanningContext(question), list(mixed_placements(question)), random.Random(seed)
    rng.shuffle(placements)
    for one, placed in placements[:6]:
        bound = mixed_bound(context, [(one, placed)], 1e9, context.limit).seconds
        for variant in variants_of_mixed(question, one):
            with suppress(NoRoute, NotDefined, NotModelled, Infeasible):
                found = candidate(MixedStageCosts(context), variant, placed, True)
                if found is None:
                    continue
                for layers, microbatches in ((found.layers, found.microbatches), moved(found, rng)):
                    if target is not None:
                        microbatches = found.microbatches
                        assert len(set(microbatches)) == 1
                    held = devices(found.stages, found.shape.tp)
                    plan = assemble(question, found.shape, layers, held, "by hand", microbatches)
                    if fits(plan):
                        assert bound <= step(simulate_plan(plan)) * (1 + 1e-9)


def moved(found: MixedCandidate, rng: random.Random) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Layers and microbatches of a candidate, where one of either is moved at most."""
    layers, microbatches = list(found.layers), list(found.microbatches)
    for numbers in (layers, microbatches):
        giver, taker = rng.randrange(len(numbers)), rng.randrange(len(numbers))
        if numbers[giver] > 1:
            numbers[giver] -= 1
            numbers[taker] += 1
    return tuple(layers), tuple(microbatches)


@pytest.mark.parametrize(
    ("batch", "target", "has_plan"), [(8, None, True), (8, alike_replicas(), False), (9, alike_replicas(), True)]
)
def test_three_replicas_have_no_equal_numbers_of_eight_microbatches(batch, target, has_plan):
    nics = (make.nic("ethernet", 1e9),)
    clusters = make.cluster("a", 2, nics=nics), make.cluster("b", 1, nics=nics)
    machines = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 1e9, 0.0),))
    question = replace(request(machines, make.model(2), batch, Wishes(schedule="1f1b", zero_stage=1)), target=target)
    context, (a, b) = PlanningContext(question), question.clusters()
    found = mixed_bound(context, [(shape(dp=3), ((Run(a, 0, 2), Run(b, 0, 1)),))], 1e9, context.limit)
    assert (found.seconds < 1e9) == has_plan == bool(found.holders)


def test_gradients_of_stages_on_one_node_take_their_time_apart_from_the_microbatches():
    """Two stages on one node of each cluster, a replica on each: what leaves a node, and seven of eight microbatches."""
    nics, spec = (make.nic("ethernet", 1e5),), make.device("chip", 1e8, 1e30)
    a, b = (make.cluster(name, 1, 2, nics, spec, intra_node=make.wire(bandwidth=1e12)) for name in "ab")
    fleet = make.fleet(a, b, trunks=(Trunk(("a", "b"), "ethernet", 1e9, 0.0),))
    question = request(fleet, make.model(4), 16, Wishes(schedule="1f1b", zero_stage=1))
    context, one = PlanningContext(question), shape(dp=2)
    placed = tuple((Run(a, i, 1), Run(b, i, 1)) for i in (0, 1))
    bound, costs = mixed_bound(context, [(one, placed)], 1e9, context.limit).seconds, MixedStageCosts(context)
    loads = [costs.rings.loads(one, placed).seconds(1, (4 - k, k)) for k in (1, 2, 3)]
    cycles = [start + k * each for start, each in [costs.own_seconds(one, Run(a, 1, 1), (False, True))] for k in (1, 2, 3)]
    least = min(load + 7 * cycle for load, cycle in zip(loads, cycles, strict=True))
    assert bound is not None
    assert least * (1 - 2e-3) <= bound
    for k in (1, 2, 3):
        plan = assemble(question, one, (4 - k, k), devices(placed, 1), "by hand", (8, 8))
        assert bound <= step(simulate_plan(plan)) * (1 + 1e-9)
    monotone = sorted(cycles)
    assert monotone == cycles and min(loads) > 0.5 * least, "gradients are most of the step"
