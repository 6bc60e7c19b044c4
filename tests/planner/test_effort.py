"""The work of a search is counted, and each second belongs to one activity."""

from __future__ import annotations

import pytest

from planner.costs.context import PlanningContext
from planner.effort import Effort
from planner.search.budgets import Budgets
from planner.strategies import certified
from tests.planner.builders import on_two_clusters, shape
from tests.planner.search.searches import evaluation


def test_an_activity_inside_another_one_counts_for_itself_only(monkeypatch):
    clock = iter([0.0, 10.0, 14.0, 20.0, 21.0, 30.0, 40.0, 45.0])
    monkeypatch.setattr("planner.effort.time.perf_counter", lambda: next(clock))
    effort = Effort()
    with effort.spent("bounds"):  # 0 to 30
        with effort.spent("pipelines priced", 5):  # 10 to 14
            pass
        with effort.spent("pipelines priced", 2):  # 20 to 21
            pass
    with effort.spent("bounds", 1):  # 40 to 45
        pass
    assert effort.seconds == {"bounds": 25.0 + 5.0, "pipelines priced": 5.0}
    assert effort.times == {"bounds": 1, "pipelines priced": 7}


def test_work_that_fails_counts_too():
    effort = Effort()
    with pytest.raises(KeyboardInterrupt), effort.spent("programmes solved", 1):
        raise KeyboardInterrupt
    assert effort.times == {"programmes solved": 1}


def test_every_layout_of_a_small_fleet_is_counted_with_what_became_of_it():
    """6 microbatch sizes; each has 7 schedules with their vpp, and one ZeRO stage."""
    question = on_two_clusters(layers=6, batch=12)
    context = PlanningContext(question)
    certified.plan(question, context)
    layouts = {
        ("base", "opened"): 6,
        ("schedule", "opened"): 6,
        ("schedule", "deadline test"): 36,
        ("variant", "deadline test"): 2,
        ("variant", "evaluated"): 4,
    }
    assert context.effort.layouts == layouts
    assert context.effort.times["plans simulated"] == len(context.simulated) == 2
    assert context.effort.times["programmes solved"] == 0 < context.effort.times["pipelines priced"]
    assert set(context.effort.seconds) == {
        "estimates", "bounds", "pipelines priced", "plans simulated", "mixed stages", "other strategies"
    }  # fmt: skip


def test_a_search_that_may_do_nothing_leaves_all_layouts_open():
    question = on_two_clusters(layers=6, batch=12)
    context = PlanningContext(question)
    certified.plan(question, context, Budgets(unproved_variants=0))
    assert context.effort.layouts == {("base", "left open"): 6}


def test_each_pipeline_that_is_evaluated_is_priced():
    priced = evaluation(on_two_clusters(layers=6, batch=12), shape())
    priced.evaluated([((0, 3), (1, 3)), ((0, 4), (1, 2)), ((0, 5), (1, 1))])
    assert priced.context.effort.times == {"pipelines priced": 3}
