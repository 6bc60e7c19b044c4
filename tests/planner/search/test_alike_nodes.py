"""Pipelines whose inner nodes have the same layers."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from planner.limits import Allowed, Limits
from planner.placement.simulation import step
from planner.request import Request
from planner.search.alike_nodes import patterns, simulate_alike
from planner.search.crowded_links import move_layers
from tests.planner.builders import shape
from tests.planner.search.searches import incumbent
from tests.planner.search.test_crowded_links import FLAT, four_nodes


@pytest.mark.parametrize(("layers", "pp", "per_node"), [(12, 7, 2), (14, 8, 3), (10, 5, 2), (16, 12, 4)])
def test_all_nodes_between_the_first_and_the_last_are_alike(layers, pp, per_node):
    found = list(patterns(layers, pp, per_node))
    assert found
    assert len(set(found)) == len(found)
    for one in found:
        assert len(one) == pp
        assert sum(one) == layers
        assert min(one) >= 1
        nodes = [one[first : first + per_node] for first in range(0, pp, per_node)]
        assert len(set(nodes[1:-1])) == 1
        assert nodes[0][-1] == nodes[1][-1]
        assert len(nodes[-1]) == 1 or nodes[-1][0] == nodes[1][0]


def test_all_splits_of_small_pipelines_with_alike_nodes_are_found():
    """Of two stages on each of four nodes, whose ends differ by at most two layers."""
    every = {
        (a, end, begin, end, begin, end, begin, b)
        for a, begin, end, b in product(range(1, 6), repeat=4)
        if a + b + 3 * begin + 3 * end == 12 and abs(a - b) <= 1
    }
    assert set(patterns(12, 8, 2)) >= every


def test_the_plan_of_metis_128():
    assert (2, 2, 2, 1, 1, 3, 3, 1, 1, 3, 3, 1, 1, 3, 3, 2) in patterns(32, 16, 4)


def test_alike_nodes_are_faster_than_moved_layers_where_messages_take_turns():
    moved, alike = incumbent(four_nodes(1.2e5)), incumbent(four_nodes(1.2e5))
    for kept in (moved, alike):
        assert kept.offer(shape(), tuple(FLAT))
    move_layers(moved)
    simulate_alike(alike, [shape()])
    assert [stage.layers for stage in alike.best.stages] == [5, 1, 3, 1, 3, 3]
    assert step(alike.best) == pytest.approx(4.986, rel=1e-3)
    assert step(moved.best) == pytest.approx(5.040, rel=1e-3)


def test_only_lengths_that_are_allowed_and_crowded_nics_are_tried():
    """At 3e5 bytes a second the messages of an inner node take less than half of the step."""
    wide, closed, seven = (incumbent(question) for question in (four_nodes(3e5), four_nodes(1.2e5), _seven()))
    for kept in (wide, closed, seven):
        assert kept.offer(shape(), tuple(FLAT))
    closed.lower_bound = closed.cutoff
    for kept in (wide, closed, seven):
        simulate_alike(kept, [shape()])
    assert [len(kept.seen) for kept in (wide, closed)] == [1, 1]
    assert {len(stages) for _, stages in seven.seen} == {7, 8}


def _seven() -> Request:
    """Pipelines of seven stages or more."""
    return replace(four_nodes(1.2e5), limits=Limits(dimensions=(("pp", Allowed(least=7)),)))
