"""Shapes that a target can run, and plans for it: every one can be run, and none in its space is faster than the bound."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from planner.costs.context import PlanningContext
from planner.placement.ranks import build
from planner.placement.simulation import step
from planner.request import Wishes
from planner.search.budgets import Budgets
from planner.space import lengths
from planner.space.runnable import (
    fault,
    recomputes_blocks,
    refuses_model,
    runs,
    runs_under,
    schedules_for,
    takes_unlike_microbatches,
)
from planner.space.shapes import searched, variants
from planner.strategies import certified, get, names
from sim.errors import Infeasible, NotDefined
from sim.plan.parallel_config import BLOCK
from tests.more import after
from tests.planner.brute_force import every_plan, fastest_step
from tests.planner.builders import on_one_cluster, plan_of, random_request, shape
from tests.planner.targets import target

QUESTION = replace(on_one_cluster(layers=4, batch=8, nodes=2, devices=2), target=target())


def test_without_a_target_every_shape_runs():
    free = replace(QUESTION, target=None)
    assert runs(free, shape(schedule="zb-h2"), 2) and fault(free, shape(schedule="zb-h2")) == ""
    assert schedules_for(None, free.workload) == ("1f1b", "interleaved", "zb-h1", "zb-h2")


@pytest.mark.parametrize(
    ("one", "alone", "several"),
    [
        (shape(dp=2), False, True),
        (shape(dp=2, zero_stage=3), True, False),
        (shape(), True, True),
        (shape(schedule="zb-h1"), False, False),
        (shape(dp=3), False, False),
    ],
)
def test_one_stage_and_several_are_asked_for(one, alone, several):
    assert (runs(QUESTION, one, 1), runs(QUESTION, one, 2), runs(QUESTION, one, 7)) == (alone, several, several)
    assert bool(fault(QUESTION, one)) == (not alone and not several)


@pytest.mark.parametrize(
    ("wishes", "one", "reason"),
    [
        (Wishes(), shape(), "alone: never"),
        (Wishes(pp=1), shape(), "alone: never"),
        (Wishes(pp=2), shape(), "pp 2: never"),
        (Wishes(), shape(schedule="interleaved", vpp=2), "pp 2: never"),
    ],
)
def test_the_fault_is_that_of_one_stage_unless_several_are_asked_for(wishes, one, reason):
    """With several stages a target may have another fault, which does not say why it cannot express the shape in one."""
    never = replace(
        target(), unsupported_layout=lambda config, _: iter([f"pp {config.pp}: never" if config.pp > 1 else "alone: never"])
    )
    assert fault(replace(QUESTION, target=never, wishes=wishes), one) == reason


def test_schedules_of_a_shape_run_where_nothing_is_wrong_with_the_shape_under_them():
    found = set()
    for dp in (1, 2, 3):
        able = runs_under(QUESTION, shape(dp=dp))
        for name, vpp, zero in [("1f1b", 1, 1), ("1f1b", 1, 3), ("zb-h1", 1, 1), ("interleaved", 2, 2)]:
            one = shape(dp=dp, schedule=name, vpp=vpp, zero_stage=zero)
            assert able(name, vpp, zero) == (not fault(QUESTION, one))
            found.add(able(name, vpp, zero))
    assert found == {True, False}


def test_unlike_numbers_of_microbatches_are_asked_for_with_the_shape():
    """By 1F1B in a pipeline a target may run them, and on one stage not; a single replica has no others."""

    def only_in_pipelines(config, workload):
        return iter(["num_microbatches"] if len(set(config.num_microbatches)) > 1 and config.pp == 1 else [])

    loose = replace(QUESTION, target=replace(target(), unsupported_layout=only_in_pipelines))
    for pp, takes in ((1, False), (2, True), (7, True)):
        assert takes_unlike_microbatches(loose, shape(dp=3), pp) == takes
        assert not takes_unlike_microbatches(loose, shape(dp=1), pp)
        assert not takes_unlike_microbatches(QUESTION, shape(dp=3), pp)
        assert takes_unlike_microbatches(replace(QUESTION, target=None), shape(dp=3), pp)


def test_a_model_is_refused_where_every_layout_is():
    """What is said of one device and of two in each way is the model's; what only pipelines cannot do is not."""

    def of_model(config, workload):
        return iter(["mlp gelu", *(["pp"] if config.pp > 1 else [])])

    def of_layouts(config, workload):
        return iter([f"tp {config.tp}", f"pp {config.pp}"])

    assert refuses_model(replace(QUESTION, target=replace(target(), unsupported_layout=of_model)))
    assert not refuses_model(replace(QUESTION, target=replace(target(), unsupported_layout=of_layouts)))
    assert not refuses_model(QUESTION)
    assert not refuses_model(replace(QUESTION, target=None))


def test_the_search_has_shapes_that_run_only():
    found = [variant for base in searched(QUESTION) for variant in variants(QUESTION, base)]
    assert {variant.schedule for variant in found} == {"1f1b"}
    assert {variant.zero_stage for variant in found if variant.dp > 1} == {1, 3}
    assert all(variant.divides(QUESTION.workload) for variant in found)


def test_a_target_that_plays_no_searched_schedule_gets_its_own():
    def only_gpipe(config, workload):
        return iter([f"schedule {config.schedule}"] if config.schedule != "gpipe" else [])

    gpipe = replace(target(), unsupported_layout=only_gpipe, unsupported_placement=lambda plan: iter(()))
    assert schedules_for(gpipe, QUESTION.workload) == ("gpipe",)
    plan = plan_of(replace(QUESTION, target=gpipe))
    assert plan is not None and plan.config.schedule == "gpipe"
    assert plan.certificate is not None and plan.certificate.gap < 0.0051


def test_a_plan_that_the_target_cannot_run_is_not_built():
    with pytest.raises(NotDefined, match="strict cannot express pp 4: at most 2"):
        build(QUESTION, shape(), (("c", 1),) * 4, "by hand")


def test_where_nothing_runs_the_reason_and_the_remedy_are_said():
    nothing = replace(target(), unsupported_layout=lambda config, workload: iter(["tp 1: never"]))
    with pytest.raises(Infeasible, match=r"^strict cannot express tp 1: never$"):
        certified.plan(replace(QUESTION, target=nothing), PlanningContext(replace(QUESTION, target=nothing)))
    never = replace(target(), unsupported_placement=lambda plan: iter(["placement: never"]))
    with pytest.raises(Infeasible, match="strict cannot run a layout that fits, for example because of placement: never"):
        certified.plan(replace(QUESTION, target=never), PlanningContext(replace(QUESTION, target=never)))


def test_the_reason_is_no_property_that_other_refused_shapes_lack():
    """Some dp do not divide the batch: this is not why the target runs none."""

    def refused(config, workload):
        if len(set(config.num_microbatches)) > 1:
            yield "num_microbatches: alike"
        yield "precision bf16: never"

    asked = replace(QUESTION, target=replace(target(), unsupported_layout=refused))
    uneven = replace(asked, workload=replace(asked.workload, global_batch_size=7))
    with pytest.raises(Infeasible, match=r"^strict cannot express precision bf16: never$"):
        list(searched(uneven))


@pytest.mark.parametrize("seed", after(3, (1, 2, 3, 0, *range(4, 14)), last=7))
def test_every_strategy_plans_for_the_target_and_no_plan_for_it_is_faster_than_the_bound(seed):
    """Against brute force over all shapes and pipelines of a random fleet, whether they run or not."""
    question = replace(random_request(seed), time_limit=math.inf, target=target())
    free = replace(question, target=None)
    best = fastest_step(plan for plan in every_plan(free, searched(free)) if not target().fault(plan))
    for name in names():
        context = PlanningContext(question)
        try:
            plan = certified.plan(question, context, Budgets()) if name == "certified" else get(name).plan(question, context)
        except Infeasible:
            assert name != "certified" or math.isinf(best)
            continue
        assert target().fault(plan) == ""
        if name == "certified" and math.isfinite(best):
            assert plan.certificate is not None
            assert plan.certificate.lower_bound_s <= best * (1 + 1e-9)
            assert step(plan) <= best * 1.005


def test_a_target_says_whether_it_recomputes_some_layers():
    def no_layers(config, workload):
        return iter(["recompute_layers 1: never"] if config.recompute_layers else [])

    assert all(recomputes_blocks(replace(QUESTION, target=None)))
    assert not any(recomputes_blocks(replace(QUESTION, target=None, wishes=Wishes(offload="activations"))))
    assert all(recomputes_blocks(QUESTION))
    assert not any(recomputes_blocks(replace(QUESTION, target=replace(target(), unsupported_layout=no_layers))))


def test_blocks_are_recomputed_without_a_pipeline_where_only_such_layouts_have_them():
    def in_pipelines(config, workload):
        return iter(["recompute_layers: in pipelines"] if config.recompute_layers and config.pp > 1 else [])

    asked = replace(QUESTION, target=replace(target(), unsupported_layout=in_pipelines))
    assert recomputes_blocks(asked) == (True, False)
    assert {one.recompute for one in searched(asked)} == {"none", "full", BLOCK}
    assert lengths.longest(asked, shape(recompute=BLOCK)) == 1
    assert lengths.longest(asked, shape(recompute="full")) is None
    assert {one.recompute for one in searched(QUESTION)} == {BLOCK}


def test_blocks_are_not_recomputed_where_an_exchange_overlaps_and_the_target_forbids_it():
    def whole_layers(config, workload):
        return iter(["beside: recompute full"] if config.overlap_expert_communication and config.recompute == "full" else [])

    asked = replace(QUESTION, target=replace(target(), unsupported_layout=whole_layers), wishes=Wishes(ep=2))
    stack = replace(asked.topology.stack, overlap_expert_communication=True)
    assert all(recomputes_blocks(asked))
    assert not any(recomputes_blocks(replace(asked, topology=replace(asked.topology, stack=stack))))
