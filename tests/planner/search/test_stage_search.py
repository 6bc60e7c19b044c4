"""The local search over stages changes the number of stages of each class, their order and their layers."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes
from planner.request import Request
from planner.search.candidates import Candidate, estimates
from planner.search.stage_search import StageSearch
from planner.space.shape import Shape
from sim.hardware.cluster import Trunk
from sim.hardware.memory_facts import WORKSPACE
from tests import builders as make
from tests.more import after
from tests.planner import outside_torch
from tests.planner.builders import many_clusters, pipelines, request, shape
from tests.planner.search.searches import candidate

PLENTY = 10_000
"""Pipelines that a search may evaluate: more than it needs."""


def random_fleet(seed: int) -> Request:
    """Three to five clusters of one to three nodes with one device each, of different speed, memory and latency."""
    rng = random.Random(seed)
    clusters = [
        make.cluster(
            name,
            nodes=rng.randint(1, 3),
            nics=(make.nic("ethernet", rng.choice([3e6, 3e7]), latency=rng.choice([3e-3, 5e-2])),),
            spec=make.device(
                f"chip-{name}",
                rng.choice([1e9, 2e9, 4e9]),
                1e9,
                memory=rng.choice([10e6, 1e9]) + WORKSPACE + outside_torch.CONTEXT,
            ),
        )
        for name in "abcde"[: rng.choice([3, 4, 4, 5])]
    ]
    trunks = (Trunk((a.name, b.name), "ethernet", 3e7, 1e-2) for a, b in itertools.combinations(clusters, 2))
    return request(make.fleet(*clusters, trunks=tuple(trunks)), make.model(rng.randint(4, 6)), rng.choice([6, 12]))


def fastest_of_all(context: PlanningContext, one: Shape) -> Candidate:
    """The fastest pipeline of two stages or more that fits memory, of all orders, numbers of stages and layers."""
    found = []
    for stages in pipelines(context.request, one):
        if len(stages) > 1:
            every = candidate(context, one, stages)
            capacity = every.evaluation.layer_capacity([i for i, _ in every.pipeline])
            if all(layers <= most for (_, layers), most in zip(every.pipeline, capacity, strict=True)):
                found.append(every)
    return min(found, key=lambda one: one.seconds)


def searched(context: PlanningContext, one: Shape) -> list[Candidate]:
    """What the search finds from the three best estimates, as the first plan does it; the fastest first."""
    search = StageSearch(context, one, PLENTY)
    starts = [
        best.evaluated()
        for best in estimates(context, one, node_classes(context, one), 3, by_speed=True)
        if len(best.pipeline) > 1
    ]
    found = [search.improved(start) for start in starts]
    assert all(after.seconds <= before.seconds for before, after in zip(starts, found, strict=True))
    return sorted(found, key=lambda candidate: candidate.seconds)


@pytest.mark.parametrize("seed", after(2, [2, 3, 0, 1, *range(4, 10)], last=6))
def test_the_search_finds_the_fastest_of_all_pipelines(seed: int):
    """No proof: for most of these fleets the estimates alone are slower, by up to a factor of 2.8."""
    context, one = PlanningContext(random_fleet(seed)), shape(schedule=("zb-h1", "zb-h2")[seed % 2])
    found, best = searched(context, one)[0], fastest_of_all(context, one)
    assert found.seconds == pytest.approx(best.seconds, rel=1e-9)
    assert candidate(context, one, found.stages).seconds == pytest.approx(found.seconds, rel=1e-9)


def test_a_pinned_pp_holds():
    question = random_fleet(0)
    context = PlanningContext(replace(question, wishes=replace(question.wishes, pp=3)))
    assert {len(found.pipeline) for found in searched(context, shape(schedule="zb-h1"))} == {3}


def test_after_the_time_limit_or_without_a_budget_a_candidate_stays_as_it_is():
    for seconds, most in ((0.0, PLENTY), (float("inf"), 0)):
        context, one = PlanningContext(replace(random_fleet(0), time_limit=seconds)), shape(schedule="zb-h1")
        start = estimates(context, one, node_classes(context, one))[-1].evaluated()
        assert StageSearch(context, one, most).improved(start).stages == start.stages


@pytest.mark.parametrize("seed", after(1, [5, 0, 7]))
def test_new_beginnings_find_faster_pipelines(seed: int):
    """Six clusters: descents from the three best estimates end 1.7 to 4 % above what they find from changed pipelines."""
    context, one = PlanningContext(many_clusters(seed, 6, layers=14, batch=12)), shape()
    found, search = searched(context, one)[0], StageSearch(context, one, 6_000)
    again = search.restarted(found)
    assert again.seconds < 0.99 * found.seconds
    assert candidate(context, one, again.stages).seconds == pytest.approx(again.seconds, rel=1e-9)
    assert StageSearch(context, one, 6_000).restarted(found).stages == again.stages
