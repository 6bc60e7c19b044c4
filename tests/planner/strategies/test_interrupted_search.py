"""Ctrl-C during a search: the best plan so far, with the bound that is proved so far; and the draft, the first such plan."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import replace

import pytest

from planner.costs.context import PlanningContext
from planner.placement.simulation import fits, step
from planner.progress import Progress
from planner.request import Request
from planner.search.incumbent import Incumbent
from planner.strategies import certified
from sim.plan.plan import Plan
from tests.more import after
from tests.planner.builders import plan_of, random_request

SEEDS = after(3, [3, 5, 7, 0, 9, 13])


def question_of(seed: int) -> Request:
    return replace(random_request(seed), time_limit=math.inf)


@functools.cache
def undisturbed(seed: int) -> tuple[Plan, list[Progress]]:
    """The plan of a search that ends by itself, and its states."""
    plan, _, states = interrupted_at(question_of(seed), -1)
    return plan, states


def interrupted_at(question, number: int) -> tuple[Plan, PlanningContext, list[Progress]]:
    """The plan of a search that is interrupted when it reports its state for the given time."""
    states: list[Progress] = []

    def watch(state: Progress) -> None:
        states.append(state)
        if len(states) == number:
            raise KeyboardInterrupt

    context = PlanningContext(question, watch=watch)
    return certified.plan(question, context), context, states


@pytest.mark.parametrize("seed", SEEDS)
def test_an_interrupt_gives_the_best_plan_so_far_and_what_is_proved(seed):
    whole, _ = undisturbed(seed)
    assert whole.certificate is not None
    number, done = 1, False
    while not done:
        plan, context, states = interrupted_at(question_of(seed), number)
        done = not context.interrupted
        assert fits(plan) and plan.certificate is not None
        assert plan.certificate.objective_s == step(plan) >= step(whole) * (1 - 1e-9)
        assert plan.certificate.lower_bound_s <= step(whole) * (1 + 1e-9)
        assert plan.certificate.gap == 1 - plan.certificate.lower_bound_s / step(plan)
        if not done:  # a state tells of pipelines with each stage on one cluster, the certificate of mixed stages, too
            mixed = plan.certificate.mixed_lower_bound_s
            gap = max(states[-1].gap, 0.0 if mixed is None else 1 - mixed / step(plan))
            assert (states[-1].step_s, plan.certificate.gap) == (step(plan), pytest.approx(gap, abs=1e-12))
        number = number * 2 if number > 3 else number + 1
    assert number > 3, "at least three states were reported"


@pytest.mark.parametrize("seed", SEEDS)
def test_steps_only_fall_and_bounds_only_rise_while_a_search_runs(seed):
    _, states = undisturbed(seed)
    steps = [state.step_s for state in states if state.step_s is not None]
    assert steps == sorted(steps, reverse=True) and states[0].step_s == steps[0], "the draft is the first state"
    gaps = [state.gap for state in states]
    assert all(b <= a + 1e-12 for a, b in itertools.pairwise(gaps))


def test_before_the_first_plan_an_interrupt_is_an_interrupt(monkeypatch):
    def interrupted(*arguments, **further):
        raise KeyboardInterrupt

    monkeypatch.setattr(certified, "find_first_plan", interrupted)
    question = random_request(0)
    with pytest.raises(KeyboardInterrupt):
        certified.plan(question, PlanningContext(question))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_draft_does_not_make_the_plan_worse(seed, monkeypatch):
    best, _ = undisturbed(seed)
    monkeypatch.setattr(Incumbent, "sketch", lambda *arguments: None)
    assert step(best) <= step(plan_of(question_of(seed)))
