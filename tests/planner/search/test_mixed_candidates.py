"""Layers and microbatches of placements with mixed stages."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from planner.costs.context import PlanningContext
from planner.costs.mixed_stages import MixedStageCosts
from planner.placement.ranks import assemble
from planner.request import Request, Wishes
from planner.search.mixed import mixed_placements
from planner.search.mixed_candidates import MixedCandidate, candidate, with_moved_layers
from planner.space.device_slots import devices
from planner.space.mixed_schedules import variants_of_mixed
from sim.analytic.evaluator import evaluate
from sim.formats import topology
from tests.planner.builders import on_two_clusters

PINS = Wishes(tp=1, dp=8, pp=8, microbatch_size=1, recompute="none", schedule="1f1b", zero_stage=1)


def first_candidate(question: Request, costs: MixedStageCosts) -> MixedCandidate:
    """The candidate of the first placement under its first schedule."""
    one, stages = next(iter(mixed_placements(question)))
    found = candidate(costs, next(iter(variants_of_mixed(question, one))), stages, True)
    assert found is not None
    return found


def evaluated(question: Request, one: MixedCandidate) -> float:
    placement = devices(one.stages, one.shape.tp)
    return float(evaluate([assemble(question, one.shape, one.layers, placement, "by hand", one.microbatches)])[0])


def test_the_first_stages_have_fewer_layers_where_they_reduce_their_gradients_last():
    """Eight stages of eight V100 each on 5 Gbit/s Ethernet: a stage with fewer layers sends less, and begins later."""
    where = topology.load("topologies/peers/dtfm-2-universities.yaml")
    assert where.workload is not None
    question = Request(where, where.workload, PINS)
    costs = MixedStageCosts(PlanningContext(question))
    listed = first_candidate(question, costs)
    moved = with_moved_layers(costs, listed)
    assert moved is not None
    assert listed.layers == (3, 3, 3, 3, 3, 4, 4, 1)
    assert moved.layers == (1, 3, 4, 4, 4, 3, 3, 2)
    assert (listed.seconds, moved.seconds) == pytest.approx((6.3426, 5.7277), abs=1e-4)
    assert replace(moved, layers=listed.layers, seconds=listed.seconds) == listed
    assert (evaluated(question, listed), evaluated(question, moved)) == pytest.approx((6.410, 5.967), abs=1e-3)


@pytest.mark.parametrize(("layers", "assigned", "fastest"), [(6, (3, 2, 1), (2, 3, 1)), (9, (5, 2, 2), (3, 3, 3))])
def test_no_split_of_the_layers_is_faster(layers, assigned, fastest):
    """All splits over three stages, one of which is on both clusters."""
    wishes = Wishes(tp=1, dp=2, pp=3, microbatch_size=1, recompute="none", schedule="1f1b", zero_stage=1)
    question = on_two_clusters(layers=layers, nodes=3, batch=12, wishes=wishes)
    costs = MixedStageCosts(PlanningContext(question))
    listed = first_candidate(question, costs)
    found = with_moved_layers(costs, listed)
    assert found is not None and (listed.layers, found.layers) == (assigned, fastest)
    splits = (split for split in itertools.product(range(1, layers), repeat=3) if sum(split) == layers)
    steps = {split: evaluated(question, replace(listed, layers=split)) for split in splits}
    assert min(steps, key=steps.__getitem__) == fastest
    assert steps[fastest] < 0.95 * steps[assigned]
    assert with_moved_layers(costs, found) is None
