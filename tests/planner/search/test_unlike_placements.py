"""Placements with mixed stages in the search of layers that differ."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from planner.bounds.unlike_work import UnlikeWork
from planner.costs.context import PlanningContext
from planner.costs.unlike_layers import UnlikeCosts
from planner.placement.simulation import simulate_plan, step
from planner.request import Request
from planner.search import unlike_placements
from planner.search.mixed import is_mixed
from planner.search.unlike_placements import PlacementBounds, placements
from planner.space.mixed_schedules import runs_alike
from tests.planner.bounds.test_unlike_placed import wanted_on
from tests.planner.unlike import question


@pytest.fixture
def alike(monkeypatch) -> None:
    """All replicas have equally many microbatches, as frameworks run them."""
    monkeypatch.setattr(unlike_placements, "runs_alike", lambda *_: True)


def costs_of(wanted: Request) -> UnlikeCosts:
    """The costs of a request."""
    return UnlikeCosts(PlanningContext(wanted))


def every(wanted: Request, costs: UnlikeCosts) -> list[tuple[float, unlike_placements.Placement]]:
    """All placements with their bounds by total work."""
    return list(placements(wanted, UnlikeWork(costs.context, costs.layers)))


def test_one_cluster_has_no_placements() -> None:
    wanted = question()
    assert every(wanted, costs_of(wanted)) == []


@pytest.mark.usefixtures("alike")
def test_the_bound_is_between_the_given_ones_and_its_cut_is_a_plan_that_takes_longer() -> None:
    wanted = wanted_on(3, 3)
    costs = costs_of(wanted)
    bounds, tried = PlacementBounds(costs), 0
    for low, one in every(wanted, costs):
        cut = bounds.of(one, low, math.inf)
        plan = simulate_plan(bounds.plan(one, cut, wanted))
        assert low <= cut.seconds <= step(plan) * (1 + 1e-9)
        assert is_mixed(plan) and tuple(stage.layers for stage in plan.stages) == cut.layers
        assert bounds.of(one, low, cut.seconds) == (cut.seconds, None, ())
        tried += 1
    assert tried > 3


def test_replicas_of_unlike_numbers_of_microbatches_have_a_bound_and_no_cut() -> None:
    """Between total work and the deadline, within a sixteenth of their difference of the least that may be."""
    wanted = wanted_on(1, 1)
    costs = costs_of(wanted)
    low, one = every(wanted, costs)[0]
    assert not runs_alike(one.part, one.shape, 1, [unlike_placements.schedules.get("1f1b")])
    bounds = PlacementBounds(costs)
    seconds, *nothing = bounds.of(one, low, 2 * low)
    assert nothing == [None, ()] and low <= seconds < 2 * low
    assert bounds.of(one, low, seconds) == (seconds, None, ())
    assert bounds.of(one, low, math.inf) == (low, None, ())


@pytest.mark.usefixtures("alike")
def test_dp_that_does_not_divide_the_batch_has_no_plan_of_equal_replicas() -> None:
    wanted = wanted_on(2, 1)
    wanted = replace(wanted, wishes=replace(wanted.wishes, dp=None))
    costs = costs_of(wanted)
    (pair,) = [(low, one) for low, one in every(wanted, costs) if one.shape.dp == 3]
    assert PlacementBounds(costs).of(pair[1], pair[0], 1e9) == (1e9, None, ())
