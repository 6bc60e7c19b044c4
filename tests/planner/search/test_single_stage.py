"""Pipelines of one stage: each has a bound of its own."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from holmes_sim import exporters
from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes
from planner.placement.ranks import build
from planner.placement.simulation import step
from planner.request import Wishes
from planner.search.candidates import priced
from planner.search.single_stage import may_beat_cutoff, single_stage_bounds
from planner.space.shapes import overlaps, searched, variants
from sim.errors import NotModelled, PlanError
from tests import builders as make
from tests.more import after
from tests.planner.brute_force import fastest_step
from tests.planner.builders import on_one_cluster, random_request, shape
from tests.planner.search.searches import incumbent, simulated


def test_a_single_stage_is_bounded_by_its_step_and_becomes_the_incumbent():
    question = on_one_cluster(layers=4, batch=6)
    kept = incumbent(question)
    (bound,) = single_stage_bounds(kept, shape())
    assert step(kept.best) == pytest.approx(bound)
    assert kept.best.config.pp == 1


def test_a_simulated_stage_is_bounded_by_the_step_that_is_searched_for(monkeypatch):
    """Where shared links make its step longer than the evaluator says, and the evaluator models it."""
    question = on_one_cluster(layers=4, batch=6)
    (candidate,) = priced(PlanningContext(question), shape(), node_classes(PlanningContext(question), shape()), [((0, 4),)], 1)
    monkeypatch.setattr("planner.search.single_stage.priced", lambda *_: [replace(candidate, seconds=0.9 * candidate.seconds)])
    kept = incumbent(question)
    (bound,) = single_stage_bounds(kept, shape())
    assert bound == kept.target == pytest.approx(0.995 * candidate.seconds)

    def refuses(*_: object) -> None:
        raise NotModelled("")

    monkeypatch.setattr("planner.search.single_stage.priced", refuses)
    monkeypatch.setattr("planner.search.single_stage.single_seconds", lambda _: 0.9 * candidate.seconds)
    assert single_stage_bounds(incumbent(question), shape()) == [0.9 * candidate.seconds]


def test_with_a_pinned_pp_of_two_there_is_none():
    question = on_one_cluster(nodes=2, wishes=Wishes(pp=2))
    kept = incumbent(question)
    assert single_stage_bounds(kept, shape()) == []
    assert not may_beat_cutoff(kept, shape())
    assert may_beat_cutoff(incumbent(on_one_cluster(nodes=2, wishes=Wishes(pp=1))), shape())


def test_a_stage_that_is_slower_than_the_best_plan_is_bounded_by_its_compute_and_not_simulated():
    """Two nodes in a pipeline are faster than one alone."""
    question = on_one_cluster(layers=8, batch=16, nodes=2)
    kept = incumbent(question, best=simulated(question, shape(), ("c", 4), ("c", 4)))
    (bound,) = single_stage_bounds(kept, shape())
    assert bound > kept.cutoff
    assert kept.context.simulated == []
    assert not may_beat_cutoff(kept, shape())


def test_a_dominated_or_too_large_stage_has_no_bound_of_its_own():
    question = on_one_cluster(layers=4, batch=4, devices=2)
    assert set(single_stage_bounds(incumbent(question), shape(dp=2, zero_stage=2))) == {math.inf}
    assert set(single_stage_bounds(incumbent(question), shape(dp=2, zero_stage=1))) != {math.inf}


def test_one_stage_has_no_virtual_stages():
    assert single_stage_bounds(incumbent(on_one_cluster(layers=4)), shape(schedule="interleaved", vpp=2)) == []


def test_a_stage_on_a_part_of_a_node_that_the_target_refuses_has_no_plan():
    """Three replicas on two nodes of two devices, in order or evenly; Holmes wants whole nodes, which two replicas fill."""
    shape_of = {"mlp": "gelu", "learned_positions": 64}
    free = on_one_cluster(layers=4, batch=6, devices=2, nodes=2, nics=(make.nic("ethernet", 1e9),))
    model = replace(free.workload.model, **shape_of)
    workload = replace(free.workload, model=model, precision="fp16")
    question = replace(free, workload=workload, target=exporters.target("holmes"))
    refused, able = (shape(dp=dp, overlap_param_gather=False) for dp in (3, 2))
    assert set(single_stage_bounds(incumbent(question), refused)) == {math.inf}
    assert any(map(math.isfinite, single_stage_bounds(incumbent(question), able)))
    assert any(map(math.isfinite, single_stage_bounds(incumbent(replace(question, target=None)), refused)))


@pytest.mark.parametrize("seed", after(2, range(2, 24, 2), last=7))
def test_no_plan_of_one_stage_is_faster_than_its_bound_or_the_incumbent(seed):
    question = random_request(seed)
    for base in searched(question):
        for variant in (one for one in variants(question, base) if one.vpp == 1):  # virtual stages need a pipeline
            kept = incumbent(question)
            bound = min(single_stage_bounds(kept, variant), default=math.inf)
            plans = []
            for one in overlaps(variant):
                for cluster in question.clusters():
                    for evenly in (False, True):
                        try:
                            stages = ((cluster.name, question.workload.model.layers),)
                            plan = build(question, one, stages, "by hand", evenly)
                        except (PlanError, StopIteration):  # the cluster has too few devices, or nothing joins them
                            continue
                        if len(plan.placement) == plan.config.world_size:
                            plans.append(plan)
            least = fastest_step(plans)
            if replace(variant, zero_stage=1) == variant or variant.zero_stage == 3:
                assert bound <= least * (1 + 1e-9)
                assert kept.cutoff == pytest.approx(least, rel=1e-9) or kept.cutoff == least
