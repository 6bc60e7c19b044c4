"""The listing of pipelines with given numbers of stages."""

from __future__ import annotations

from planner.bounds.greedy_filling import Filling
from planner.bounds.listing import Layers, largest_layers, pipelines
from planner.bounds.ordered_stages import OrderedStages
from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes
from tests.planner.builders import on_one_cluster, shape


def filling(seconds: float) -> Filling:
    """Five layers on three stages of one class."""
    context = PlanningContext(on_one_cluster(5, 4, nodes=3))
    return Filling(OrderedStages(context, node_classes(context, shape())), seconds, [3], 3)


def listed_within(seconds: float, most: int) -> Layers | None:
    """The listed pipelines; None where they are more than `most`."""
    one = filling(seconds)
    largest = largest_layers(one)
    assert largest is not None
    return pipelines(one, largest, most)


def test_without_a_deadline_every_split_of_the_layers_is_listed_once():
    listed = listed_within(1e9, 10)
    assert listed is not None
    splits = [(1, 1, 3), (1, 2, 2), (1, 3, 1), (2, 1, 2), (2, 2, 1), (3, 1, 1)]
    assert sorted(map(tuple, listed.tolist())) == splits


def test_more_than_the_most_are_not_listed():
    assert listed_within(1e9, 5) is None


def test_no_pipeline_finishes_at_once():
    assert largest_layers(filling(1e-12)) is None
