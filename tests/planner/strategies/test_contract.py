"""The contract of every strategy, and the registry."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, replace

import pytest

from holmes_sim import commands
from planner import strategies
from planner.costs.context import PlanningContext
from planner.placement.simulation import fits, simulate_plan, step
from planner.request import Request, Wishes
from planner.search.budgets import Budgets
from sim.errors import Infeasible
from sim.formats import planfile
from sim.plan.plan import Plan
from tests.more import after
from tests.planner.builders import NO_PROOF, plan_of
from tests.planner.strategies.fleets import FEW, FLEETS, on


@dataclass(frozen=True)
class Planned:
    """A request and the plan of each strategy; None where a strategy has none."""

    request: Request
    plans: dict[str, Plan | None]


@pytest.fixture(scope="module", params=after(2, sorted(FLEETS, key=lambda name: name != "infiniband and roce")))
def planned(request: pytest.FixtureRequest) -> Planned:
    question = on(request.param, FEW)
    return Planned(question, {name: plan_of(question, name) for name in strategies.names()})


@pytest.mark.parametrize("strategy", strategies.names())
def test_a_plan_fits_and_has_the_prediction_of_its_simulation(planned, strategy):
    plan = planned.plans[strategy]
    if plan is None:
        assert strategy != "certified", "these fleets can all be planned"
        return
    assert plan.made_by.strategy == strategy
    assert plan.prediction is not None
    assert fits(plan)
    assert simulate_plan(replace(plan, prediction=None)).prediction == plan.prediction
    assert plan.workload == planned.request.workload
    assert sum(plan.config.num_microbatches) * plan.config.microbatch_size == 24
    assert (plan.certificate is not None) == (strategy == "certified")


def test_certified_is_never_slower_than_the_others(planned):
    best = step(planned.plans["certified"])
    assert all(other is None or step(other) >= best for other in planned.plans.values())


def test_a_certificate_adds_up(planned):
    plan = planned.plans["certified"]
    found = plan.certificate
    assert 0 < found.lower_bound_s <= found.objective_s == step(plan)
    assert found.gap == pytest.approx(1 - found.lower_bound_s / found.objective_s)
    assert found.status == ("optimal" if found.gap <= Budgets().optimal_gap else "feasible")
    assert found.solver.startswith("closed form")


PARTS = {
    "alike": (Wishes(tp=2), Wishes(pp=3)),
    "two speeds": (Wishes(tp=1), Wishes(pp=2)),
    "infiniband and roce": (Wishes(dp=1), Wishes(schedule="1f1b")),
    "three clusters": (Wishes(tp=1), Wishes(pp=3)),
    "odd numbers": (Wishes(dp=1), Wishes(pp=2)),
}
"""Fleet -> pins."""


def test_the_bound_is_no_higher_than_the_plan_under_more_pins(planned):
    """A lower bound of a space is one of every part of it, however soon the search of the part ends."""
    name = next(name for name in FLEETS if on(name, FEW) == planned.request)
    bound = planned.plans["certified"].certificate.lower_bound_s
    for wishes in PARTS[name]:
        pinned = replace(wishes, microbatch_size=FEW.microbatch_size, recompute=FEW.recompute)
        assert bound <= step(plan_of(on(name, pinned), budgets=NO_PROOF)) * (1 + 1e-6)


@pytest.mark.parametrize("strategy", strategies.names())
def test_pinned_dimensions_are_kept(strategy):
    wishes = Wishes(tp=2, pp=2, dp=2, microbatch_size=2, recompute="full", zero_stage=0, schedule="gpipe")
    config = plan_of(on("alike", wishes), strategy).config
    assert (config.tp, config.pp, config.dp, config.microbatch_size) == (2, 2, 2, 2)
    assert (config.recompute, config.zero_stage, config.schedule) == ("full", 0, "gpipe")


@pytest.mark.parametrize("strategy", strategies.names())
def test_a_pinned_vpp_interleaves(strategy):
    config = plan_of(on("alike", Wishes(tp=1, pp=2, dp=4, vpp=3, microbatch_size=1)), strategy).config
    assert (config.vpp, config.schedule, config.pp) == (3, "interleaved", 2)


@pytest.mark.parametrize("strategy", strategies.names())
@pytest.mark.parametrize(("cp", "ep"), after(2, [(2, 1), (2, 4), (1, 2)]))
def test_pinned_context_and_expert_degrees_are_kept(strategy, cp, ep):
    request = on("infiniband and roce" if cp < 2 else "alike", Wishes(tp=1, cp=cp, ep=ep, recompute="none", microbatch_size=1))
    model = replace(request.workload.model, experts=4, experts_per_token=2, ffn_hidden=768)
    request = replace(request, workload=replace(request.workload, model=model))
    request = replace(request, topology=replace(request.topology, workload=request.workload))
    plan = plan_of(request, strategy)
    assert (plan.config.tp, plan.config.cp, plan.config.ep) == (1, cp, ep)
    assert plan.config.world_size == len(plan.placement) <= 8
    assert fits(plan)
    assert simulate_plan(replace(plan, prediction=None)).prediction == plan.prediction
    if plan.certificate is not None:
        assert plan.certificate.lower_bound_s <= step(plan)


@pytest.mark.parametrize("strategy", strategies.names())
@pytest.mark.parametrize(
    "wishes", [Wishes(tp=5), Wishes(dp=7, zero_stage=3), Wishes(pp=13), Wishes(microbatch_size=5)], ids=str
)
def test_what_cannot_be_is_infeasible(strategy, wishes):
    request = on("alike", wishes)
    with pytest.raises(Infeasible):
        strategies.get(strategy).plan(request, PlanningContext(request))


@pytest.mark.parametrize("strategy", strategies.names())
def test_the_same_request_has_the_same_plan(strategy):
    request = on("odd numbers", FEW)
    first, second = plan_of(request, strategy), plan_of(request, strategy)
    assert first == second
    if first is not None:
        assert planfile.to_json(first) == planfile.to_json(second)


@pytest.mark.usefixtures("real_communicators")
def test_the_plan_does_not_depend_on_the_hash_seed():
    """A process with another seed gives the plan of this one."""
    script = (
        "import sys; from holmes_sim import commands; from planner.request import Wishes; from sim.formats import planfile\n"
        "wishes = Wishes(tp=2, dp=8, microbatch_size=4, recompute='none')\n"
        "plan = commands.plan(commands.load('holmes-hybrid-4'), wishes=wishes).plan\n"
        "sys.stdout.write(planfile.to_json(plan))"
    )
    other = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    text = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONHASHSEED": other, "PYTHONPATH": str(commands.topologies_folder().parent)},
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    here = commands.plan(commands.load("holmes-hybrid-4"), wishes=Wishes(tp=2, dp=8, microbatch_size=4, recompute="none")).plan
    assert text == planfile.to_json(here)
    assert planfile.from_text("plan.json", text).certificate is not None


def test_the_folder_is_the_registry():
    published = {"alpa", "amp", "dt_fm", "hethub", "holmes", "megatron", "metis"}
    assert {"certified", "random", *published} <= set(strategies.names())
    assert all(callable(strategies.get(name).plan) for name in strategies.names())
