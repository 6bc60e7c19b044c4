"""The dynamic programme over numbers of layers of ranks, where layers differ."""

from __future__ import annotations

import math
from dataclasses import replace

from planner import api
from planner.bounds.unlike_deadline import deadline_bound
from planner.bounds.unlike_ranks import RankProgramme, contents
from planner.costs.context import PlanningContext
from planner.costs.layer_kinds import Layers
from planner.costs.unlike_layers import UnlikeCosts
from planner.placement.simulation import step
from planner.request import Request
from tests.planner.unlike import PINNED, interleaved, only_shape, question


def bound_of(wanted: Request, pp: int, cutoff: float = math.inf) -> float:
    context, shape = PlanningContext(wanted), only_shape(wanted)
    classes = UnlikeCosts(context).classes(shape)
    kinds = contents(classes[0].layers, shape.vpp)
    return RankProgramme(context, shape, classes, kinds, cutoff).least(pp)


def test_contents_of_ranges_of_a_model_with_four_cheap_layers_of_eight() -> None:
    layers = Layers(question().workload)
    whole = contents(layers, 1)
    assert whole[0] == [(0, 0)]
    assert whole[3] == [(0, 3), (1, 2), (2, 1), (3, 0)]
    assert whole[8] == [(4, 4)]
    assert contents(layers, 2)[2] == [(0, 2), (1, 1), (2, 0)]
    assert contents(layers, 2)[8] == [(4, 4)], "no more layers of a kind than the model has"


def test_the_bound_is_below_the_step_and_nearer_than_the_deadline_test() -> None:
    wanted = question()
    context, shape = PlanningContext(wanted), only_shape(wanted)
    deadline = deadline_bound(context, shape, UnlikeCosts(context).classes(shape), 0.0, math.inf)
    bound, seconds = bound_of(wanted, 2), step(api.plan(wanted))
    assert deadline < bound <= seconds * (1 + 1e-9)
    assert bound > 0.9 * seconds


def test_with_virtual_stages_each_rank_may_have_the_cheapest_layers() -> None:
    """So the bound is further away: both ranks may have all four cheap layers."""
    wanted = question(interleaved(2))
    seconds = step(api.plan(wanted))
    assert 0.6 * seconds < bound_of(wanted, 2) <= seconds * (1 + 1e-9)


def test_no_rank_holds_what_takes_longer_than_the_cutoff() -> None:
    wanted = question()
    bound = bound_of(wanted, 2)
    assert bound_of(wanted, 2, cutoff=2 * bound) == bound
    assert bound_of(wanted, 2, cutoff=bound / 2) >= bound / 2


def test_there_is_no_pipeline_with_more_ranks_than_stages() -> None:
    assert bound_of(question(replace(PINNED, pp=None)), 3) == math.inf
