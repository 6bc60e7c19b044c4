"""Solutions of the master programme, in the order of what they promise."""

from __future__ import annotations

import math

import pytest

from planner.pipelines.columns import Columns
from planner.pipelines.part_bounds import PartBounds
from planner.pipelines.parts import parts
from planner.pipelines.solutions import SHARE, Solutions, single_node
from planner.time_limit import TimeLimit
from tests.planner.pipelines.fleets import two_kinds

ASKED = two_kinds(batch=32)


def solutions(seconds: float = math.inf) -> Solutions:
    return Solutions(ASKED, parts(ASKED), Columns(ASKED), PartBounds(ASKED), TimeLimit(seconds))


def test_solutions_have_nodes_of_their_own_and_compute_most_of_the_batch():
    every, deadline = solutions(), 0.2
    found = list(every.ordered(deadline))
    assert found
    for columns in found:
        for used, have in zip(map(sum, zip(*(column.part for column in columns), strict=True)), (2, 1), strict=True):
            assert used <= have
        assert sum(column.samples(deadline) for column in columns) >= SHARE * 32


def test_single_nodes_and_whole_clusters_are_planned_first():
    every = solutions()
    next(every.ordered(0.2))
    for part, one in (((1, 0), True), ((2, 0), True), ((2, 0), False), ((0, 1), True), ((0, 1), False)):
        assert every.columns.is_known(part, one)


def test_no_part_is_planned_whose_gradients_take_too_long():
    """In known columns the links of a node with all layers take 0.145 s for their gradients, so those of five take 0.029 s:
    more than the largest limit, half the deadline. So nothing but single nodes and whole clusters is planned, although the
    bound of five nodes is 0.020 s."""
    asked = two_kinds(nodes=(3, 3), batch=64, rate=1e7)
    columns = Columns(asked)
    every = Solutions(asked, parts(asked), columns, PartBounds(asked), TimeLimit(math.inf))
    assert list(every.ordered(0.05)) == []
    assert min(column.gradients(2) * column.used_nodes for column in columns.known) == pytest.approx(0.145, rel=1e-3)
    assert {column.part for column in columns.known} == {(1, 0), (3, 0), (0, 1), (0, 3)}
    assert not any(columns.is_known(part, one) for part in ((2, 0), (1, 1), (3, 2)) for one in (True, False))


@pytest.mark.parametrize("deadline", [0.0, 1e-6])
def test_nothing_is_promised_within_no_time(deadline):
    assert list(solutions().ordered(deadline)) == []


def test_nothing_is_planned_without_time():
    every = solutions(0.0)
    assert list(every.ordered(0.2)) == []
    assert every.columns.searched == 0


def test_single_node():
    assert single_node((3, 5, 1), 1) == (0, 1, 0)
