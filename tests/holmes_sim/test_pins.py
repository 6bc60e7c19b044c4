"""Pins as keyword arguments, and searches that another thread ends."""

from __future__ import annotations

import threading

import pytest

import holmes_sim as hs
from holmes_sim.pins import cancelled_by, pinned
from sim.errors import HolmesError

LAB = hs.load("lab/lab-slow-dp")


def test_pins_join_the_wishes():
    assert pinned("plan", None, {"tp": 2}) == hs.Wishes(tp=2)
    assert pinned("plan", hs.Wishes(tp=2, pp=4), {"pp": 2}) == hs.Wishes(tp=2, pp=2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hs.plan(LAB, ttp=2), "plan has no argument 'ttp'; did you mean 'tp'?"),
        (lambda: hs.plan(LAB, tp="2"), "tp '2' should be a whole number of at least 1"),
        (lambda: hs.compare(LAB, pp=0), "pp 0 should be a whole number of at least 1"),
        (lambda: hs.pareto(LAB, zero_stage=-1), "zero_stage -1 should be a whole number of at least 0"),
        (lambda: hs.shortlist(LAB, 2, dp=1.5), "dp 1.5 should be a whole number of at least 1"),
        (lambda: hs.plan(LAB, recompute="all"), "recompute 'all' is unknown; known: none, selective, full, block"),
    ],
)
def test_wrong_pins_are_one_line(call, message):
    with pytest.raises(HolmesError) as caught:
        call()
    assert str(caught.value) == message


def test_plans_and_comparisons_keep_to_their_pins():
    pins = {"tp": 1, "pp": 2, "dp": 2, "microbatch_size": 4, "schedule": "1f1b"}
    plan = hs.plan(LAB, **pins).plan
    assert {key: getattr(plan.config, key) for key in pins} == pins
    (row,) = hs.compare(LAB, names=("megatron",), **pins).ranked
    assert row[1].config.pp == 2
    assert hs.replan(plan, "eth/node3", pp=1).plan.config.pp == 1


def test_another_thread_ends_a_search():
    """Set after the first report of a plan, it ends the search with this plan; set before, there is none."""
    cancel, seen = threading.Event(), []

    def watch(state):
        seen.append(state.step_s)
        if state.step_s is not None:
            cancel.set()

    answer = hs.plan(LAB, watch=watch, cancel=cancel)
    assert answer.interrupted
    assert len([step for step in seen if step is not None]) < 4
    with pytest.raises(KeyboardInterrupt):
        hs.plan(LAB, cancel=cancel)


def test_without_a_cancel_the_progress_is_as_given():
    assert cancelled_by(None, print) is print
