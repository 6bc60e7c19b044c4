"""Laws of the outcome of a change: an addition never loses, and a gain that is called known is one of the best plans."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holmes_sim.change_planning import Answer
from holmes_sim.changes import Change
from holmes_sim.outcomes import PLANNED, PRESENT_PLAN, UNUSED, Outcome, outcome, with_smaller_sizes

TOKENS = 1e6
STEPS = st.floats(0.1, 10.0)
GAPS = st.floats(0.0, 0.9)
FRACTIONS = st.floats(0.0, 1.0)


def simulated(step_s: float) -> SimpleNamespace:
    """The prediction of a plan."""
    return SimpleNamespace(step_s=step_s, tokens_per_s=TOKENS / step_s)


def answered(step_s: float, gap: float) -> Answer:
    return Answer(0, step_s, TOKENS / step_s, gap)


NOW = simulated(2.0)
ANSWERS = st.one_of(st.none(), st.builds(answered, STEPS, GAPS), st.just(Answer(0, reason="it failed")))
SIMULATED = st.one_of(st.none(), st.builds(simulated, STEPS))


@given(SIMULATED, ANSWERS)
def test_an_addition_is_never_a_loss(present, answer):
    found = outcome(NOW, Change("more", (), adds=True), None, present, answer)
    assert (found.gain is None) == (present is None and answer is None), "nothing was done"
    assert found.gain is None or found.gain >= 0
    assert found.gain_at_most is None or found.gain_at_most >= found.gain


@given(st.booleans(), SIMULATED, ANSWERS)
def test_an_outcome_is_the_fastest_plan_that_is_known(adds, present, answer):
    found = outcome(NOW, Change("one", (), adds=adds), None, present, answer)
    steps = [plan.step_s for plan in (present, answer) if plan is not None and plan.step_s]
    if found.step_s is None:
        assert not steps
    elif found.how == UNUSED:
        assert adds and found.step_s == NOW.step_s < min(steps, default=3.0)
    else:
        assert found.step_s == min(steps)
        assert found.how == (PLANNED if answer is not None and answer.step_s else PRESENT_PLAN)


@given(STEPS, STEPS, GAPS, STEPS, GAPS, FRACTIONS, FRACTIONS)
def test_a_known_gain_is_one_of_the_best_plans(step_s, present_s, new_gap, now_s, now_gap, new_place, now_place):
    """Wherever the best plans of today and of the change are, between their proven bounds and the plans found."""
    now = simulated(now_s)
    found = outcome(now, Change("one", ()), None, simulated(present_s), answered(step_s, new_gap))
    best_new = min(step_s * (1 - new_gap * new_place), present_s)
    best_now = now_s * (1 - now_gap * now_place)
    if found.is_known(now_gap):
        assert (best_new < best_now) if found.gain > 0 else (best_new > best_now)
    if best_new >= step_s * (1 - new_gap):
        assert now_s / best_new - 1 <= found.gain_at_most * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize(
    ("gain", "gap", "present_gap", "known"),
    [
        (0.05, 0.3, 0.04, True),
        (0.05, 0.0, 0.05, False),
        (0.0, 0.0, 0.0, False),
        (-0.2, 0.1, 0.3, True),
        (-0.2, 0.25, 0.0, False),
        (-0.2, None, 0.0, False),
        (0.05, None, 0.04, True),
        (None, None, 0.0, False),
    ],
)
def test_a_gain_is_known_if_it_exceeds_what_is_not_proved(gain, gap, present_gap, known):
    found = Outcome(Change("one", ()), 1.0, 1.0, gain, None, PLANNED, gap=gap)
    assert found.is_known(present_gap) is known
    assert found.facts(present_gap)["gain_known"] is known


@given(st.lists(st.tuples(SIMULATED, ANSWERS), min_size=1, max_size=4))
def test_a_larger_size_gains_no_less_than_a_smaller_one(sizes):
    several = [outcome(NOW, Change(f"{n}", (), True, "nodes"), None, *facts) for n, facts in enumerate(sizes)]
    other = outcome(NOW, Change("other", ()), None, simulated(99.0), None)
    *found, last = with_smaller_sizes([*several, other])
    assert last == other
    gains = [one.gain for one in found if one.gain is not None]
    assert gains == sorted(gains)
    for before, after in zip(several, found, strict=True):
        assert after == before or after.how == UNUSED
        if before.gap is not None and before.step_s is not None:
            assert after.step_s * (1 - after.gap) == pytest.approx(min(before.step_s * (1 - before.gap), after.step_s))


def test_a_size_that_was_not_evaluated_takes_the_plan_of_a_smaller_one():
    small, large = Change("one", (), True, "nodes"), Change("two", (), True, "nodes")
    found = with_smaller_sizes([outcome(NOW, small, 1.0, None, answered(1.0, 0.1)), outcome(NOW, large, 2.0, None, None)])
    assert found[1] == replace(found[0], change=large, usd_per_h=2.0, how=UNUSED, gap=None)
