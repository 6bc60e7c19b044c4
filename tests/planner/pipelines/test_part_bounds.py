"""Bounds on parts: whole layers of one replica, work of several, and gradients on NICs."""

from __future__ import annotations

import math

import pytest

from planner.bounds import unlike_pipelines as bounds
from planner.bounds.pipeline_modes import modes
from planner.costs.context import PlanningContext
from planner.pipelines.columns import Columns
from planner.pipelines.part_bounds import PartBounds
from planner.pipelines.parts import parts
from planner.time_limit import TimeLimit
from tests.planner.pipelines.fleets import two_kinds

ASKED = two_kinds()
LIMIT = TimeLimit(math.inf)


@pytest.fixture(scope="module")
def found() -> PartBounds:
    return PartBounds(ASKED)


def test_no_column_computes_more_samples(found):
    """Neither one replica nor several, within any deadline."""
    columns = Columns(ASKED)
    for part in parts(ASKED):
        for column in (*columns.of(part, True), *columns.of(part, False)):
            one = column.plan.config.dp == 1
            for many in (1, 3, 16):
                deadline = column.step(many * column.plan.config.dp)
                assert column.samples(deadline) <= found.samples(part, one, deadline) * (1 + 1e-9)
            assert found.gradients(part, 2) <= column.gradients(2) * (1 + 1e-9)
            assert found.gradients(part, 5) <= column.gradients(5) * (1 + 1e-9)


def test_one_replica_has_whole_layers(found):
    """Three layers on two devices: one stage has two of them, or tensor or context parallelism divides all."""
    every = modes(PlanningContext(ASKED))["b"]
    least = min(
        min(one.seconds[0] * (2 if one.devices == 1 else 3) for one in every if one.size == size) / size
        for size in (1, 2, 4, 8)
    )
    assert found.samples((0, 1), True, 100 * least) <= 100
    assert found.samples((0, 1), True, 100 * least) >= 90
    assert found.samples((0, 1), True, 0.9 * min(one.seconds[0] for one in every)) == 0


def test_gradients_leave_a_part_over_all_of_its_nics(found):
    """Half of the payload of two replicas, three quarters of four; two nodes of `a` have two NICs of 1e9 bytes a second."""
    whole = bounds.payload(ASKED)
    assert found.gradients((1, 0), 2) == pytest.approx(whole / 2 / 1e9)
    assert found.gradients((2, 0), 4) == pytest.approx(whole * 3 / 4 / 2e9)


def test_what_has_no_room_computes_nothing():
    assert PartBounds(two_kinds(memory=1e5)).samples((1, 1), True, 1e9) == 0.0


def test_what_rules_out_a_search(found):
    """Compute within a short deadline, gradients on a slow network, parts that take each other's nodes."""
    every = parts(ASKED)
    assert found.rules_out(every, 1.0, LIMIT) == ""
    slow = PartBounds(two_kinds(rate=1e3))
    assert "gradients alone take" in slow.rules_out(every, 1.0, LIMIT)
    fast = PartBounds(two_kinds(rate=1e15))
    assert fast.rules_out(every, 1e-6, LIMIT) == "for their compute alone takes longer"
    assert found.rules_out([(2, 1)], 1.0, LIMIT) == "for no two of them have nodes of their own"
