"""All pipelines of a few stages whose layers differ."""

from __future__ import annotations

import itertools
import math

import pytest

from planner.costs.context import PlanningContext
from planner.costs.unlike_layers import UnlikeCosts
from planner.search import unlike_exhaust
from planner.search.unlike_exhaust import all_splits, are_few, listed, number_of_splits, orders
from planner.search.unlike_splits import ClosedForm
from tests.planner.bounds.test_rank_programme import four_in_two_clusters
from tests.planner.bounds.test_unlike_lengths import simulated
from tests.planner.search.test_unlike_evaluation import evaluation
from tests.planner.unlike import interleaved, only_shape, question

WANTED = question(interleaved(2))
SHAPE = only_shape(WANTED)
CONTEXT = PlanningContext(WANTED)
CLASSES = UnlikeCosts(CONTEXT).classes(SHAPE)
CLOSED = {n: ClosedForm(CONTEXT, SHAPE, (CLASSES[0],) * 2).seconds((n, 8 - n))[0] for n in range(2, 7)}
"""Closed form of the two ranks of a class, with n and 8 - n layers, by n."""


def test_each_pipeline_has_its_seconds_on_an_idle_network() -> None:
    found = listed(CONTEXT, SHAPE, CLASSES, (0, 0), all_splits(CLASSES, SHAPE, 2), math.inf)
    assert [seconds for seconds, _ in found] == sorted(seconds for seconds, _ in found)
    exact = dict(zip(CLOSED, evaluation(WANTED).seconds((0, 0), [(n, 8 - n) for n in CLOSED], math.inf), strict=True))
    assert {pipeline: seconds for seconds, pipeline in found} == {
        (("a", n), ("a", 8 - n)): pytest.approx(max(exact[n], closed)) for n, closed in CLOSED.items()
    }


def test_what_is_slow_by_its_closed_form_is_not_evaluated() -> None:
    cutoff = sorted(CLOSED.values())[1]
    found = listed(CONTEXT, SHAPE, CLASSES, (0, 0), all_splits(CLASSES, SHAPE, 2), cutoff)
    assert sorted(seconds for seconds, _ in found if seconds != min(found)[0])[-1] == max(CLOSED.values())
    assert len(found) == len(CLOSED)
    assert sum(seconds in CLOSED.values() for seconds, _ in found) >= 4


def test_with_virtual_stages_the_last_rank_may_lack_layers_for_further_tokens() -> None:
    """Three of them over two virtual stages: the last rank has two layers of eight, and its virtual stages one each."""
    wanted = question(interleaved(2), layers=5, mtp_layers=3, dense_layers=1)
    context, shape = PlanningContext(wanted), only_shape(wanted)
    classes = UnlikeCosts(context).classes(shape)
    splits = all_splits(classes, shape, 2)
    assert splits == [(n, 8 - n) for n in range(2, 7)]
    for seconds, pipeline in listed(context, shape, classes, (0, 0), splits, math.inf):
        stages = tuple((name, own + 3 * rank) for rank, (name, own) in enumerate(pipeline))
        splits.remove((stages[0][1], stages[1][1]))
        assert 0.8 < seconds / simulated(wanted, stages) <= 1 + 1e-9
    assert not splits


def test_orders_of_two_classes_with_two_stages_each() -> None:
    wanted = four_in_two_clusters(1e8, "1f1b", 1)
    classes = UnlikeCosts(PlanningContext(wanted)).classes(only_shape(wanted))
    assert orders(classes, 1) == [(0,), (1,)]
    assert orders(classes, 3) == [(0, 1, 1), (0, 0, 1), (1, 0, 0), (1, 1, 0)]
    assert orders(classes, 5) == []


def test_many_pipelines_or_orders_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = four_in_two_clusters(1e8, "1f1b", 1)
    shape = only_shape(wanted)
    classes = UnlikeCosts(PlanningContext(wanted)).classes(shape)
    assert number_of_splits(classes, shape, 3) == 21 == len(list(itertools.combinations(range(7), 2)))
    assert are_few(classes, shape, 3)
    monkeypatch.setattr(unlike_exhaust, "FEW", 83)
    assert not are_few(classes, shape, 3), "21 splits of four orders"
    monkeypatch.setattr(unlike_exhaust, "MOST_ORDERS", 3)
    assert orders(classes, 3) == []
