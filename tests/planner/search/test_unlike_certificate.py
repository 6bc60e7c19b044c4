"""The certificate of a plan of a model whose layers differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner import api
from planner.bounds.mixed_deadline import MixedBound
from planner.costs.context import PlanningContext
from planner.placement.simulation import step
from planner.request import Wishes
from planner.search.unlike_certificate import certificate, certified
from planner.search.unlike_layers import UnlikeSearch
from planner.search.unlike_shapes import open_shapes
from planner.time_limit import TimeLimit
from sim.plan.plan import Plan
from tests.planner.unlike import PINNED, question


@pytest.fixture(scope="module")
def plan() -> Plan:
    return api.plan(question(replace(PINNED, recompute=None), mtp_layers=1))


def test_it_says_how_far_the_plan_may_be_from_the_best(plan: Plan) -> None:
    found = plan.certificate
    assert found is not None
    assert found.objective_s == step(plan)
    assert 0.9 * found.objective_s < found.lower_bound_s <= found.objective_s
    assert found.gap == pytest.approx(1 - found.lower_bound_s / found.objective_s)
    assert (found.solver, found.time_limit_reached, found.mixed_lower_bound_s) == ("closed form", False, None)
    assert (plan.made_by.strategy, plan.workload.model.mtp_layers) == ("certified", 1)


def test_it_names_the_space(plan: Plan) -> None:
    assert plan.certificate is not None
    axes = {axis.name: axis.values for axis in plan.certificate.space}
    assert axes["recompute"] == ("none", "full")
    assert axes["layers"] == (
        "any split of the model's own layers; the last stage may have the head without a layer of the model",
    )
    assert (axes["pp"], axes["tp"], axes["schedule"]) == ((2,), (1,), ("1f1b",))
    assert "recompute selective" in plan.certificate.outside
    assert plan.certificate.outside[-1] == "recomputation of some layers of a stage, which is not modelled where layers differ"


def test_without_further_layers_every_stage_has_a_layer() -> None:
    found = api.plan(question()).certificate
    assert found is not None
    assert {axis.name: axis.values for axis in found.space}["layers"] == ("any split of the model's own layers",)
    assert not any(text.startswith("recompute ") for text in found.outside)


def test_an_interrupted_search_claims_no_more_than_it_proved(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(search: UnlikeSearch) -> float:
        raise KeyboardInterrupt

    monkeypatch.setattr(UnlikeSearch, "run", interrupted)
    wanted = question(replace(PINNED, recompute=None), mtp_layers=1)
    context = PlanningContext(wanted)
    found = certified(wanted, context, plan)
    assert found is not None and found.certificate is not None
    assert (context.interrupted, found.certificate.lower_bound_s, found.certificate.status) == (True, 0.0, "feasible")


def test_it_names_a_layout_only_where_more_search_may_help(plan: Plan) -> None:
    """Plans that are faster by less than 0.5 % are not searched, so the least bound is that of a layout by chance."""
    wanted = question(replace(PINNED, recompute=None), mtp_layers=1)
    search = UnlikeSearch(wanted, PlanningContext(wanted), plan, TimeLimit(1.0))
    search.mixed, search.least_shape = MixedBound(step(plan)), next(iter(open_shapes(wanted))).shape
    named = [certificate(search, plan, share * step(plan)).least_bound_layout for share in (1 - 0.005, 0.9949)]
    assert named == [None, "tp 1, dp 1, microbatch size 1, recompute none, 1f1b, ZeRO 1"]


def test_other_strategies_have_none() -> None:
    assert api.plan(question(Wishes(tp=1, microbatch_size=1)), "megatron").certificate is None


@pytest.mark.parametrize("faster", [0.5, 2.0])
def test_a_faster_plan_of_another_strategy_is_kept(faster: float) -> None:
    wanted = question()
    best = api.plan(wanted)
    assert best.prediction is not None
    other = best.annotated(prediction=replace(best.prediction, step_s=step(best) / faster))
    found = certified(wanted, PlanningContext(wanted), best, lambda: [other])
    assert found is not None
    assert step(found) == min(step(best), step(other))
