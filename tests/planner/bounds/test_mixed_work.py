"""The bound of placements with mixed stages by compute, fill and drain."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace

import pytest

from benchmarks.certificates.fleets import draw
from planner.bounds.mixed_deadline import PlacementTest
from planner.bounds.mixed_work import PlacedWork
from planner.costs.context import PlanningContext
from planner.costs.mixed_stages import MixedStageCosts
from planner.placement.ranks import assemble
from planner.placement.simulation import fits, simulate_plan, step
from planner.request import Wishes
from planner.search.mixed import mixed_placements
from planner.search.mixed_candidates import candidate
from planner.space.device_slots import Run, devices
from planner.space.mixed_schedules import variants_of_mixed
from sim.errors import Infeasible, NoRoute, NotDefined, NotModelled
from tests import more
from tests.planner.builders import (
    NO_LIMIT,
    on_two_clusters,
    random_request,
    random_request_with_experts_or_long_sequences,
    shape,
)
from tests.planner.targets import alike_replicas


def test_two_stages_of_a_fast_and_a_slow_replica_by_hand():
    """Six layers of 8 microbatches, t and 2 t seconds a layer, on two equal stages of `rate` layers a second. With x layers on
    the second stage, the first computes for 8 (6 - x) / rate seconds, and the second for 8 x / rate and waits for t (6 - x)."""
    question = on_two_clusters(6, 8, Wishes(recompute="none", microbatch_size=1), nodes=2)
    costs, (a, b) = MixedStageCosts(PlanningContext(question)), question.clusters()
    placed = tuple((Run(a, i, 1), Run(b, i, 1)) for i in (0, 1))
    fast, slow = (costs.own_seconds(shape(), Run(one, 0, 1), (False, False))[1] for one in (a, b))
    work = PlacedWork(costs)
    for alike, rate in ((False, 1 / fast + 1 / slow), (True, 2 / slow)):
        last = (8 * 6 - rate * fast * 6) / (16 - rate * fast)  # 8 (6 - x) = 8 x + rate t (6 - x)
        assert work.bound(shape(dp=2), placed, alike, 1.0) == pytest.approx(8 * (6 - last) / rate, rel=1e-6)
    assert work.bound(shape(dp=2), placed[:1], True, 1.0) == 0.0


LAW = [(kind, seed) for seed in range(40) for kind in (draw, random_request, random_request_with_experts_or_long_sequences)]


@pytest.mark.parametrize("target", [None, alike_replicas()], ids=["unlike", "alike"])
@pytest.mark.parametrize(("kind", "seed"), more.after(4, LAW, last=30))
def test_no_plan_of_a_placement_is_faster(kind, seed, target):
    wishes = Wishes(schedule=("1f1b", "zb-h1", "gpipe", "zb-h2", "zb-latency")[seed % 5])
    question = replace(kind(seed), wishes=wishes, time_limit=NO_LIMIT, target=target)
    context, placements, rng = PlanningContext(question), list(mixed_placements(question)), random.Random(seed)
    test, costs = PlacementTest(context), MixedStageCosts(context)
    rng.shuffle(placements)
    for one, placed in placements[:6]:
        bound = test.quick(one, placed)
        for variant in variants_of_mixed(question, one):
            with suppress(NoRoute, NotDefined, NotModelled, Infeasible):
                found = candidate(costs, variant, placed, True)
                if found is not None:
                    held = devices(found.stages, found.shape.tp)
                    plan = assemble(question, found.shape, found.layers, held, "by hand", found.microbatches)
                    if fits(plan):
                        assert bound <= step(simulate_plan(plan)) * (1 + 1e-9)
