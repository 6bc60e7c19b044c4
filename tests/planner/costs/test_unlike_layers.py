"""Costs and memory of stages by the layers that they hold, where layers differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner import api
from planner.costs.context import PlanningContext
from planner.costs.unlike_layers import UnlikeCosts
from sim.analytic.plan_costs import PlanCosts
from sim.field_changes import changed
from sim.kernels import communicators, memory
from tests.planner.unlike import interleaved, only_shape, question


def test_costs_and_bytes_are_those_of_a_plan() -> None:
    wanted = question()
    plan, context = api.plan(wanted), PlanningContext(wanted)
    (option,) = UnlikeCosts(context).classes(only_shape(wanted))
    peaks = memory.peak_memory(plan)
    for index, stage in enumerate(plan.stages):
        counts, ends = option.layers.counts(stage.first, stage.past_last), plan.ends((index,))
        theirs, mine = PlanCosts(plan).stage(index, (0,)), option.cost(counts, ends)
        for name in ("forward", "backward", "reduce", "gather", "optimizer"):
            assert getattr(mine, name) == pytest.approx(getattr(theirs, name), rel=1e-12)
        held = tuple(memory.in_flight(plan, index))
        assert option.excess(counts, ends, held, 2) == pytest.approx(peaks[index] / option.room - 1, rel=1e-9)
        assert option.fits(counts, ends, held)


def test_a_stage_is_the_sum_of_its_kinds() -> None:
    wanted = question()
    (option,) = UnlikeCosts(PlanningContext(wanted)).classes(only_shape(wanted))
    cheap, expensive = option.kind_seconds()
    assert expensive.both > 2 * cheap.both
    assert option.cost((2, 3), (False, False)).both == pytest.approx(2 * cheap.both + 3 * expensive.both, rel=1e-9)
    base, (small, large) = option.kind_bytes()
    assert 0 < small.beside_one < large.beside_one
    assert large.beside(3, 0) == pytest.approx(large.beside_one + 2 * large.further)
    assert base + 8 * large.beside(3, 0) < option.room


def test_bytes_are_those_of_the_memory_model() -> None:
    """Under every number of virtual stages, which share the parts that do not depend on it."""
    wanted = question(interleaved(2))
    costs = UnlikeCosts(PlanningContext(wanted))
    for vpp in (2, 1, 4):
        (option,) = costs.classes(replace(only_shape(wanted), vpp=vpp))
        for counts, ends in (((2, 3), (False, False)), ((4, 0), (True, False)), ((0, 4), (False, True))):
            for pp, held, waits in ((2, 1, 0), (2, 2 * vpp, 0), (4, 3 * vpp + 1, 0), (4, 6 * vpp, 2)):
                workload, config = option.layers.of(counts, ends[1]), changed(option.config, pp=pp)
                inside = memory.rank_bytes(workload, config, sum(counts), held, *ends, waits)
                found = option.bytes(counts, ends).beside(held, waits, option.ahead_of_head(pp))
                assert found == pytest.approx(inside + communicators.outside_torch(config), rel=1e-12)
