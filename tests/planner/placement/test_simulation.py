"""The fastest of candidate plans by simulation, and the timeline of the fastest."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from planner.placement import simulation
from planner.placement.simulation import FastestTimeline, fastest, fits, simulate_plan, step
from planner.time_limit import TimeLimit
from sim.engine.abandonment import Abandoned
from sim.engine.engine import simulate
from sim.errors import NotDefined
from sim.kernels import memory
from sim.plan.plan import Plan
from tests import builders as make
from tests.planner.builders import on_one_cluster, shape
from tests.planner.search.searches import simulated

QUESTION = on_one_cluster(6, 6, nodes=2, spec=make.device(speed=1e9))


def split(first: int) -> Plan:
    """The plan of two stages, not simulated."""
    return replace(simulated(QUESTION, shape(), ("c", first), ("c", 6 - first)), prediction=None)


def test_a_plan_fits_where_every_rank_has_its_peak():
    plan = make.plan(make.fleet(make.cluster(spec=make.device(memory=1e12))))
    (peak,) = memory.peak_memory(plan)
    for nbytes, enough in ((peak * (1 + 1e-9), True), (peak * (1 - 1e-9), False)):
        assert fits(make.plan(make.fleet(make.cluster(spec=make.device(memory=nbytes))))) is enough


@pytest.mark.parametrize(
    ("refuses", "microbatches", "enough"), [((), 1, True), (("few_microbatches",), 1, False), (("few_microbatches",), 2, True)]
)
def test_a_plan_that_its_software_refuses_does_not_fit(refuses, microbatches, enough):
    plan = make.plan(make.fleet(make.cluster(nodes=3, devices=1)), pp=3, microbatches=microbatches)
    assert fits(replace(plan, config=replace(plan.config, refuses=refuses))) is enough


@pytest.mark.parametrize(("nbytes", "enough"), [(1.0 / 0.92, True), (1.08, False)])
def test_a_plan_leaves_the_head_room_of_its_topology_free(nbytes, enough):
    """8 % of the device: a peak of 0.92 of its memory fits, one of 1 / 1.08 = 0.926 does not."""
    (peak,) = memory.peak_memory(make.plan(make.fleet(make.cluster(spec=make.device(memory=1e12)))))
    plan = make.plan(make.fleet(make.cluster(spec=make.device(memory=peak * nbytes * (1 + 1e-9)))))
    assert fits(replace(plan, topology=replace(plan.topology, memory_headroom=0.08))) is enough


def test_the_prediction_is_that_of_the_simulation():
    assert step(simulate_plan(split(3))) == simulate(split(3)).step_s


def test_the_fastest_is_found_whatever_its_place():
    builders = [lambda first=first: split(first) for first in (1, 5, 3, 2, 4)]
    best = fastest(builders, 5, 5, TimeLimit(math.inf))
    assert step(best) == min(step(simulate_plan(build())) for build in builders)
    assert fastest(builders, 1, 1, TimeLimit(math.inf)).stages == split(1).stages, "only the first is ranked"


def test_candidates_that_cannot_be_built_are_skipped():
    def broken() -> Plan:
        raise NotDefined("no")

    assert fastest([broken, lambda: split(1)], 1, 1, TimeLimit(math.inf)).stages == split(1).stages
    assert fastest([broken], 1, 1, TimeLimit(math.inf)) is None
    assert fastest([], 1, 1, TimeLimit(math.inf)) is None


def test_after_the_time_limit_one_is_built_and_simulated():
    built = []
    fastest([lambda first=first: built.append(first) or split(first) for first in (1, 3)], 2, 2, TimeLimit(0.0))
    assert built == [1]


def test_the_timelines_of_the_fastest_and_of_the_latest_plan_are_kept(monkeypatch):
    slow, other, quick, kept = split(1), split(2), split(3), FastestTimeline()
    for plan in (slow, quick, other, slow):
        assert kept.simulate(plan).prediction == simulate_plan(plan).prediction
    again = []
    real = simulate
    monkeypatch.setattr(simulation, "simulate", lambda plan: again.append(plan) or real(plan))
    assert kept.of(kept.plan).step_s == pytest.approx(step(kept.plan))
    assert again == []
    assert kept.of(slow).step_s > step(kept.plan)
    assert again == []
    assert kept.of(other).step_s > step(kept.plan)
    assert again == [other]


def test_a_simulation_is_abandoned_above_the_limit_only():
    slow, quick, kept = split(1), split(3), FastestTimeline()
    best = kept.simulate(quick)
    assert isinstance(kept.simulate_up_to(slow, step(best)), Abandoned)
    assert kept.plan is best, "an abandoned plan replaces nothing"
    assert kept.simulate_up_to(slow, step(simulate_plan(slow))) == simulate_plan(slow)
