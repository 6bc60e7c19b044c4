"""Bounds on listed pipelines of unlike degrees: never above a plan with gathers at either time, and near the best one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.certificates.brute import STRICT
from planner.bounds.unlike_degrees import SomeShapes, UnlikeStages, at_both_times, leaving
from planner.bounds.unlike_listing import CountedStages, counted_bound, listed_bound
from planner.bounds.whole_pipelines import least_steps
from planner.costs.context import PlanningContext
from planner.costs.unlike_messages import UnlikeMessages
from planner.placement.simulation import fits
from planner.placement.unlike_degrees import build_unlike
from planner.request import Wishes
from sim.engine.engine import simulate
from tests.more import after
from tests.planner.unlike_degrees import drawn, drawn_plans, fastest_of, layout_of, question

SPEEDS = ((2e11, 2e11), (3e11, 1e11), (3e11, 1e11), (2e11, 2e11))
LAYOUTS = (((1, 2, 2), (1, 4, 1)), ((1, 2, 1), (1, 1, 2)), ((1, 1, 4), (1, 4, 1)), ((1, 2, 1), (1, 1, 2)))


@pytest.mark.parametrize(
    ("speeds", "layout", "least", "best"),
    list(zip(SPEEDS, LAYOUTS, (24.396, 58.163, 36.738, 38.312), (24.396, 58.163, 36.738, 38.814), strict=True)),
)
def test_the_bound_of_all_pipelines_is_near_the_best_one(speeds, layout, least, best):
    """Milliseconds; the best of all pipelines of the layout, by simulation."""
    context = PlanningContext(question(speeds=speeds, room=64e6))
    some, messages = layout_of(context, **dict(zip("ab", layout, strict=True))), UnlikeMessages(context)
    found = listed_bound(context, some, messages, 0.0, 1.0)
    assert counted_bound(context, some, messages, 0.0, 1.0) <= found <= fastest_of(context, some) * (1 + STRICT)
    assert (round(found * 1e3, 3), round(fastest_of(context, some) * 1e3, 3)) == (least, best)


def test_it_is_no_more_than_the_step_that_is_searched_for_and_no_less_than_what_is_known():
    context = PlanningContext(question(room=64e6))
    layout, messages = layout_of(context, a=(1, 2, 2), b=(1, 4, 1)), UnlikeMessages(context)
    assert listed_bound(context, layout, messages, 0.0, 0.02) == 0.02
    assert listed_bound(context, layout, messages, 0.03, 1.0) == 0.03


def test_too_many_pipelines_have_the_bound_of_the_deadline_test(monkeypatch):
    context = PlanningContext(question(room=64e6))
    layout, messages = layout_of(context, a=(1, 2, 2), b=(1, 4, 1)), UnlikeMessages(context)
    monkeypatch.setattr("planner.bounds.unlike_listing.LISTED", 0)
    assert listed_bound(context, layout, messages, 0.001, 1.0) == pytest.approx(
        counted_bound(context, layout, messages, 0.001, 1.0), rel=2e-3
    )
    monkeypatch.setattr("planner.bounds.unlike_listing.COUNTED", 1)  # two orders
    assert listed_bound(context, layout, messages, 0.001, 1.0) == 0.001


@pytest.mark.parametrize("seed", after(4, [420000, 420007, 420017, 420023, *range(420024, 420040)]))
def test_no_bound_is_above_a_plan_that_gathers_weights_at_either_time(seed):
    """Weights gathered after the optimizer made plans of the first four seeds up to 6 % faster than a bound with gathers before
    the forwards."""
    asked = replace(drawn(seed), wishes=Wishes())
    context = PlanningContext(asked)
    messages = UnlikeMessages(context)
    for plan, classes, counts, _ in drawn_plans(context, seed, 8):
        of = [option for option, count in zip(classes, counts, strict=True) for _ in range(count)]
        layout = tuple(SomeShapes([option]) for option in classes)
        for overlaps, one in zip((True, False), at_both_times(context, layout), strict=False):
            own = [replace(option.own, overlap_param_gather=overlaps) for option in of]
            of_each = zip(of, own, plan.stages, strict=True)
            stages = [(option.cluster.name, shape, stage.layers) for option, shape, stage in of_each]
            if not fits(built := build_unlike(asked, stages, "drawn")):
                continue
            seconds = simulate(built).step_s * (1 + 1e-9)
            in_order = UnlikeStages(context, one, messages, 2 * seconds).in_order()
            assert CountedStages(in_order, tuple(counts), tuple(leaving(one, messages))).within(seconds)
            numbers = [i for i, count in enumerate(counts) for _ in range(count)]
            layers = np.array([[stage.layers for stage in plan.stages]])
            assert least_steps(in_order, numbers, layers)[0] <= seconds
