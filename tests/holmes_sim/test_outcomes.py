"""Laws of the outcome of a change: an addition never loses, and a gain that is called known is one of the best plans."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holmes_sim.change_planning import Answer
from holmes_sim.changes import Change
from holmes_sim.outcomes import PLANNED, PRESENT_PLAN, UNUSED, Outcome, outcome, with_smaller_sizes
from holmes_sim.plan_numbers import PlanNumbers

TOKENS = 1e6
STEPS = st.floats(0.1, 10.0)
GAPS = st.floats(0.0, 0.9)
FRACTIONS = st.floats(0.0, 1.0)


def simulated(step_s: float) -> PlanNumbers:
    """The numbers of a simulated plan."""
    return PlanNumbers(step_s, TOKENS / step_s)


def answered(step_s: float, gap: float) -> Answer:
    return Answer(0, PlanNumbers(step_s, TOKENS / step_s, gap))


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
    steps = [plan.step_s for plan in (present, answer.found if answer else None) if plan is not None]
    if found.step_s is None:
        assert not steps
    elif found.how == UNUSED:
        assert adds and found.step_s == NOW.step_s < min(steps, default=3.0)
    else:
        assert found.step_s == min(steps)
        assert found.how == (PLANNED if answer is not None and answer.found else PRESENT_PLAN)


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
    found = Outcome(Change("one", ()), PlanNumbers(1.0, 1.0, gap), gain, None, PLANNED)
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
    assert found[1] == replace(found[0], change=large, found=replace(found[0].found, gap=None), usd_per_h=2.0, how=UNUSED)


def of_islands(tokens_per_s: float, steps: int = 8, worth: float | None = 1.0) -> PlanNumbers:
    """Numbers of a plan with DiLoCo."""
    known = None if worth is None else (worth, worth, worth)
    return PlanNumbers(1.0, tokens_per_s, None, f"diloco {steps}", steps, "bounded", known)


def test_plans_are_compared_by_effective_tokens():
    more = Change("more", ())
    found = outcome(PlanNumbers(1.0, 100.0), more, None, of_islands(150.0, worth=0.6), None)
    assert found.gain == pytest.approx(-0.1)
    added = outcome(PlanNumbers(1.0, 100.0), replace(more, adds=True), None, of_islands(150.0, worth=0.6), None)
    assert (added.gain, added.how, added.found.sync) == (0.0, UNUSED, "exact")


def test_an_addition_may_lower_the_price_but_not_the_speed():
    more, now = Change("more", (), adds=True), of_islands(100.0, steps=30)
    assert outcome(now, more, None, of_islands(100.0, steps=8), None).found.inner_steps == 8
    assert outcome(now, more, None, of_islands(99.9, steps=8), None).found == now
    assert outcome(now, replace(more, adds=False), None, of_islands(99.9, steps=8), Answer(0, now)).found.inner_steps == 8


def test_what_is_not_comparable_has_no_gain():
    one = Change("one", ())
    found = outcome(PlanNumbers(1.0, 100.0), one, None, of_islands(150.0, worth=None), None)
    assert (found.gain, found.tokens_per_s, found.is_known(0.0)) == (None, 150.0, False)
    both = outcome(of_islands(100.0, worth=None), one, None, of_islands(150.0, worth=None), None)
    assert both.gain == pytest.approx(0.5)
    known = outcome(of_islands(100.0), one, None, of_islands(150.0, worth=None), Answer(0, of_islands(90.0)))
    assert (known.gain, known.how) == (pytest.approx(-0.1), PLANNED), "a known worth goes first"
