"""Models of equal layers that stand for models whose layers differ, and the plans that they give."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import replace

import pytest

from planner import api
from planner.costs.context import PlanningContext
from planner.placement.simulation import fits, simulate_plan, step
from planner.request import Request, Wishes
from planner.space import stand_in
from planner.space.runnable import runs
from planner.space.shapes import searched
from planner.target import Target
from sim.errors import Infeasible, NotModelled
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import Stage
from sim.workload.workload import Workload
from tests import builders as make
from tests.planner.builders import SEARCHED_ONCE, request

MIXED = {
    "experts": 4, "experts_per_token": 1, "dense_layers": 1, "dense_ffn_hidden": 384, "mtp_layers": 1,
}  # fmt: skip


def question(wishes: Wishes = SEARCHED_ONCE, layers: int = 3, batch: int = 4) -> Request:
    """Four devices and a model of one dense layer, others with experts, and one that predicts a further token."""
    return request(make.fleet(make.cluster("a", nodes=2, devices=2)), make.model(layers, **MIXED), batch, wishes)


def test_a_target_is_asked_about_the_model_itself() -> None:
    """One that predicts no further tokens in a pipeline: stand-ins have layers in their place."""

    def unsupported(config: ParallelConfig, workload: Workload) -> Iterator[str]:
        if workload.model.mtp_layers and config.pp > 1:
            yield "mtp_layers"

    limits = Target("one", "any", (), unsupported, lambda plan: iter(()))
    free, wanted = question(Wishes()), replace(question(Wishes()), target=limits)
    for one, able in ((free, {(1, True), (2, True)}), (wanted, {(1, True), (2, False)})):
        parts = stand_in.stand_ins(one)
        assert {(pp, runs(part, shape, pp)) for part in parts for shape in searched(part) for pp in (1, 2)} == able
    assert [part.target for part in stand_in.stand_ins(free)] == [None, None]
    first, second = stand_in.stand_ins(wanted)
    assert first.target is second.target, "results that are kept by target are found again"
    assert first.target is not None and isinstance(first.target.unsupported_layout, functools.partial), "it can be pickled"


def test_all_layers_are_of_the_kind_with_most_parameters() -> None:
    wanted = question()
    (found,) = stand_in.stand_ins(replace(wanted, wishes=replace(wanted.wishes, recompute="full"), time_limit=10.0))
    model = found.workload.model
    assert (model.layers, model.experts, model.ffn_hidden, model.is_uniform) == (4, 4, 384, True)
    assert (found.wishes.recompute, found.time_limit, found.topology.workload) == ("full", 7.0, found.workload)
    none, full = stand_in.stand_ins(replace(wanted, wishes=Wishes(), time_limit=10.0))
    assert (none.wishes.recompute, full.wishes.recompute, none.time_limit) == ("none", "full", 3.5)


def test_a_plan_has_the_models_own_layers_and_their_step() -> None:
    wanted = question()
    plan = api.plan(wanted)
    assert plan.workload == wanted.workload
    assert plan.stages[-1].past_last == 3, "the layer that predicts a further token is no layer of a stage"
    assert sum(stage.layers for stage in plan.stages) == 3
    assert plan.certificate is not None
    assert plan.config.recompute_layers == ()
    assert step(plan) == step(simulate_plan(replace(plan, prediction=None)))
    assert fits(plan)


def test_the_last_layers_of_a_stand_in_are_left_out() -> None:
    (part, *_) = stand_in.stand_ins(question(Wishes(pp=2, dp=2)))
    plan = stand_in.of_model(api.plan(part), question())
    ends = [(stage.first, stage.past_last) for stage in plan.stages]
    assert ends[-1][1] == 3
    assert all(isinstance(stage, Stage) for stage in plan.stages)


def test_degrees_that_the_own_layers_cannot_have_are_infeasible() -> None:
    wanted = question(Wishes(tp=2, pp=1, dp=1))
    odd = replace(wanted.workload, model=replace(wanted.workload.model, dense_ffn_hidden=385))
    (part, *_) = stand_in.stand_ins(wanted)
    with pytest.raises(Infeasible, match=r"model tiny: config\.tp: 2 does not divide dense_ffn_hidden 385"):
        stand_in.of_model(api.plan(part), replace(wanted, workload=odd))


def test_the_other_searches_refuse_such_a_model() -> None:
    line = (
        "model tiny: its layers differ (dense_layers 1, dense_ffn_hidden 384, mtp_layers 1); only `plan` and `compare` by step "
        "time take such models yet"
    )
    with pytest.raises(NotModelled) as caught:
        list(searched(question()))
    assert str(caught.value) == line


def test_strategies_are_compared_on_the_models_own_layers() -> None:
    rows = api.compare(question(), ("certified", "megatron"))
    steps = [step(row.plan) if row.plan is not None else math.inf for row in rows]
    assert steps[0] <= steps[1] < math.inf


def test_contexts_of_stand_ins_are_shared_by_strategies() -> None:
    wanted = question()
    context = PlanningContext(wanted)
    first = api.plan(wanted, "megatron", context)
    assert api.plan(wanted, "megatron", context) is first
    assert sorted(context.stand_ins) == [0]
