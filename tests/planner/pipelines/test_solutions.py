"""Solutions of the master programme, in the order of what they promise."""

from __future__ import annotations

import math

import pytest

from planner.pipelines.budgets import Work
from planner.pipelines.columns import Columns
from planner.pipelines.part_bounds import PartBounds
from planner.pipelines.parts import parts
from planner.pipelines.solutions import SHARE, Solutions, single_node
from planner.time_limit import TimeLimit
from tests.planner.pipelines.fleets import two_kinds

ASKED = two_kinds(batch=32)


def solutions(seconds: float = math.inf) -> Solutions:
    return Solutions(ASKED, parts(ASKED), Columns(ASKED), PartBounds(ASKED), Work(TimeLimit(seconds)))


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


@pytest.mark.parametrize("deadline", [0.0, 1e-6])
def test_nothing_is_promised_within_no_time(deadline):
    assert list(solutions().ordered(deadline)) == []


def test_nothing_is_planned_without_time():
    every = solutions(0.0)
    assert list(every.ordered(0.2)) == []
    assert every.columns.searched == 0


def test_single_node():
    assert single_node((3, 5, 1), 1) == (0, 1, 0)
