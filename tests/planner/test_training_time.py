"""Days of a training run as a limit of the step, by hand, and how plans keep to it."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from planner import api, pareto_front
from planner.bounds.objectives import value
from planner.costs.context import PlanningContext
from planner.limits import Limits
from planner.placement.simulation import step
from planner.request import Wishes
from planner.training_time import TrainingTime
from sim.errors import Infeasible, TooLate
from sim.plan.certificate import Certificate
from sim.plan.plan import Plan
from sim.plan.prediction import Prediction
from tests import builders
from tests.planner.priced_fleet import two_clusters

HALF = TrainingTime(10.0, 1e9, 0.5, "as required")
"""10 days for 1 B tokens with half of the time lost: 432,000 s of steps."""


def plan(seconds: float, bound: float | None = None) -> Plan:
    """A plan with a step of some seconds, and with a certificate where a bound is given."""
    numbers = Prediction(seconds, 1.0, 1.0, 1.0, 0.5, (1.0,), 0.0, 0.0, 1.0, None, None)
    proof = None if bound is None else Certificate("feasible", seconds, bound, 1 - bound / seconds, "closed form", False)
    return replace(builders.plan(builders.fleet(builders.cluster(devices=2)), dp=2), prediction=numbers, certificate=proof)


def test_days_and_steps_by_hand():
    assert HALF.most_step(1e5) == pytest.approx(43.2)
    assert HALF.days_of(43.2, 1e5) == pytest.approx(10.0)


def test_a_plan_of_the_longest_step_is_in_time():
    most = HALF.most_step(plan(1.0).workload.tokens)
    assert HALF.fault(plan(most)) == HALF.fault(replace(plan(most), prediction=None)) == ""
    assert HALF.fault(plan(1.5 * most)) == "a training of 15 days for 1 B tokens, more than 10"
    assert list(Limits(training=HALF).faults(plan(1.5 * most))) == [HALF.fault(plan(1.5 * most))]
    assert list(Limits(training=HALF).words()) == ["days at most 10 for 1 B tokens, goodput 50.0% (as required)"]


@pytest.mark.parametrize(
    ("bound", "last"),
    [
        (1.4, "no plan of the searched space takes less than 14 days; remedy: at least 15 days, or at most 666M tokens"),
        (
            0.9,
            "no plan of the searched space takes less than 9 days, so one in time may exist, which a longer --time-limit may "
            "find; remedy: at least 15 days, or at most 666M tokens",
        ),
    ],
)
def test_the_error_says_what_is_reached_and_what_is_proved(bound, last):
    most = HALF.most_step(plan(1.0).workload.tokens)
    error = HALF.too_late(plan(1.5 * most, bound * most))
    assert error.days == pickle.loads(pickle.dumps(error)).days == pytest.approx(15.0)
    assert str(error).splitlines()[1] == last
    assert HALF.too_late(plan(1.5 * most)).args[0].endswith("; remedy: at least 15 days, or at most 666M tokens")


def within(seconds: float):
    """Two priced clusters, and so many days for 1 B tokens that a step of some seconds is just in time."""
    question = two_clusters()
    days = TrainingTime(1.0, 1e9, 0.9, "as required").days_of(seconds, question.workload.tokens)
    return replace(question, limits=Limits(training=TrainingTime(days, 1e9, 0.9, "as required")))


def test_the_fastest_plan_is_in_time_or_none_is():
    fastest = api.plan(two_clusters())
    assert step(api.plan(within(step(fastest)))) == step(fastest)
    assert fastest.certificate is not None
    for question in (within(step(fastest) * 0.999), within(fastest.certificate.lower_bound_s * 0.5)):
        with pytest.raises(TooLate, match="no plan that was found trains 1 B tokens"):
            api.plan(question)
    with pytest.raises(Infeasible, match="a training of "):
        api.plan(within(step(fastest) * 0.5), "random")


def test_the_cheapest_plan_is_one_in_time():
    """The cheapest plan is slower than the fastest one; where it is late, a plan that costs more is chosen."""
    question = two_clusters()
    cheapest, fastest = pareto_front.best(question, PlanningContext(question), "cost")
    assert step(fastest) < step(cheapest)
    limited = within(step(cheapest) * 0.999)
    found, _ = api.plan_for("cost", limited, "certified", PlanningContext(limited))
    assert step(found) <= step(cheapest) * 0.999
    assert value(cheapest, "cost") < value(found, "cost") <= value(fastest, "cost")
    late = within(step(fastest) * 0.999)
    with pytest.raises(TooLate):
        api.plan_for("cost", late, "certified", PlanningContext(late))
    with pytest.raises(Infeasible, match="no plan that was found has days at most"):
        pareto_front.pareto(late, PlanningContext(late))


def test_days_do_not_hide_what_would_make_a_plan_fit():
    with pytest.raises(Infeasible, match="; remedy: --pp 6 instead of 9"):
        api.plan(replace(within(1.0), wishes=Wishes(pp=9)))
