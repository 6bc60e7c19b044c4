"""Candidates whose warm-ups follow the borders between clusters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.costs.context import PlanningContext
from planner.placement.ranks import build
from planner.placement.simulation import fits, simulate_plan, step
from planner.request import Request
from planner.search.budgets import Budgets
from planner.search.candidates import Candidate
from planner.search.latency import latency_candidates
from planner.space.shape import Shape
from sim.formats import planfile
from sim.hardware.cluster import Trunk
from sim.hardware.memory_facts import WORKSPACE
from sim.plan import schedules
from tests import builders as make
from tests import features
from tests.planner import outside_torch
from tests.planner.builders import request, shape
from tests.planner.search.searches import candidate

STAGES = (("a", 2), ("b", 2), ("c", 2), ("d", 2))


def four_clusters(latency: float, memory: float = 1e9) -> Request:
    """Four equal clusters of one device, joined with a latency; a stage of two layers takes 0.05 s for a microbatch."""
    nics = (make.nic("ethernet", 1e8),)
    spec = make.device("chip", 4e9, 1e9, memory=memory + WORKSPACE + outside_torch.CONTEXT)
    clusters = [make.cluster(name, nics=nics, spec=spec) for name in "abcd"]
    trunks = tuple(Trunk((a, b), "ethernet", 1e8, latency) for a, b in ("ab", "ac", "ad", "bc", "bd", "cd"))
    return request(make.fleet(*clusters, trunks=trunks), make.model(8), 24)


def found_for(question: Request, one: Shape) -> tuple[Candidate, list[Candidate]]:
    """(candidate of four equal stages, candidates from it)."""
    context = PlanningContext(question)
    start = candidate(context, one, STAGES)
    return start, latency_candidates(context, [start], Budgets())


@pytest.mark.parametrize(("schedule", "most"), [("1f1b", 0.5), ("zb-h1", 0.65), ("zb-h2", 0.96)])
def test_late_messages_need_longer_warm_ups(schedule: str, most: float):
    """Messages take about as long as a microbatch: the step is shorter, by the evaluator and by the engine."""
    question = four_clusters(0.05)
    start, (best, *_) = found_for(question, shape(schedule=schedule))
    assert best.seconds < most * start.seconds
    assert schedules.peak_in_flight(best.shape.schedule, 0, 4, 24, 1) == 10
    plan = build(question, best.shape, best.stages, "by hand")
    simulated = simulate_plan(plan)
    assert fits(plan)
    assert step(simulated) == pytest.approx(best.seconds, rel=1e-9)


def test_a_plan_file_keeps_the_warm_ups():
    plan = simulate_plan(features.plan_of(features.Feature("zb-latency", {"schedule": "zb-latency=3,0"})))
    again = planfile.from_text("plan.json", planfile.to_json(plan))
    assert again.config.schedule == plan.config.schedule == "zb-latency=3,0"
    assert planfile.digest(again) == planfile.digest(plan)
    assert step(simulate_plan(again)) == step(plan)


@pytest.mark.parametrize(("memory", "name"), [(5e6, ""), (8e6, "zb-latency=6,4,2,0"), (12e6, "zb-latency=9,6,3,0")])
def test_memory_limits_the_warm_ups(memory: float, name: str):
    """Where memory holds only a few microbatches, warm-ups are shorter, or there are none; what is found fits."""
    question = four_clusters(0.05, memory=memory)
    question = replace(question, wishes=replace(question.wishes, recompute="none"))
    _, found = found_for(question, shape(schedule="zb-h1"))
    assert [one.shape.schedule for one in found] == ([name] if name else [])
    assert all(fits(build(question, one.shape, one.stages, "by hand")) for one in found)


def test_layers_are_recomputed_only_where_the_stages_do_not_fit_otherwise():
    question = four_clusters(0.05, memory=8e6)
    _, (best,) = found_for(question, shape(schedule="zb-h1"))
    assert (best.shape.schedule, best.shape.recompute) == ("zb-latency=6,4,2,0", "none")
    question = four_clusters(0.05, memory=6.5e6)
    _, (best,) = found_for(question, shape(schedule="zb-h1"))
    plan = build(question, best.shape, best.stages, "by hand")
    assert (best.shape.schedule, plan.config.recompute_layers) == ("zb-latency=9,6,3,0", (2, 1, 0, 0))


def test_what_is_pinned_holds():
    question = four_clusters(0.05)
    pinned = replace(question, wishes=replace(question.wishes, schedule="zb-h1"))
    assert found_for(pinned, shape(schedule="zb-h1"))[1] == []
    full = replace(question, wishes=replace(question.wishes, recompute="full"))
    assert {one.shape.recompute for one in found_for(full, shape(schedule="zb-h1", recompute="full"))[1]} == {"full"}
