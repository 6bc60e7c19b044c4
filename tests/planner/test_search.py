"""The planner's face: one plan by one strategy, or a row for each of several."""

from __future__ import annotations

import pytest

from holmes_sim import commands
from planner import search, strategies
from planner.question import Question, Wishes
from planner.verify import step
from planner.workshop import Workshop
from sim.errors import Infeasible, PlanError

PINNED = Wishes(tp=2, pp=2, dp=8, microbatch_size=4, recompute="none")


@pytest.fixture
def asked():
    def question(wishes: Wishes = PINNED) -> Question:
        topology = commands.load("holmes-hybrid-4")
        return Question(topology, topology.workload, wishes)

    return question


def test_the_usual_strategy_is_certified(asked):
    assert search.DEFAULT == "certified"
    assert search.plan(asked()).made_by.strategy == "certified"


def test_an_unknown_strategy_is_named_with_the_known_ones(asked):
    with pytest.raises(PlanError) as caught:
        search.plan(asked(), "magic")
    assert str(caught.value) == f"strategy 'magic' is unknown; known: {', '.join(strategies.names())}"
    with pytest.raises(PlanError):
        search.compare(asked(), ("magic",))


def test_a_row_for_each_strategy_in_the_order_asked(asked):
    rows = search.compare(asked(), ("megatron", "certified", "holmes"))
    assert [row.name for row in rows] == ["megatron", "certified", "holmes"]
    assert all(row.plan is not None and row.reason == "" for row in rows)
    assert [row.plan.made_by.strategy for row in rows] == ["megatron", "certified", "holmes"]
    assert step(rows[1].plan) <= min(step(rows[0].plan), step(rows[2].plan))


def test_a_strategy_without_a_plan_says_why(asked):
    """All 32 devices are 4 x 8 = 2 stages of 16; three stages are not a layout of megatron or holmes."""
    rows = search.compare(asked(Wishes(tp=2, pp=3, dp=4)), ("megatron", "holmes", "certified"))
    assert rows[0].plan is None and rows[0].reason.startswith("megatron: no layout with equal stages over all devices ")
    assert rows[1].plan is None and rows[1].reason.startswith("holmes: no layout of whole stages per cluster ")
    assert rows[2].plan is not None and rows[2].plan.config.pp == 3


def test_one_workshop_thinks_every_answer_out_once(asked, monkeypatch):
    question, told = asked(), []
    workshop = Workshop(question, told.append)
    first = search.plan(question, "megatron", workshop)
    assert search.compare(question, ("megatron",), workshop)[0].plan is first
    assert [text for text in told if text == "strategy megatron"] == ["strategy megatron"]


def test_what_was_infeasible_once_is_so_again(asked):
    question = asked(Wishes(dp=5))
    workshop = Workshop(question)
    for _ in range(2):
        with pytest.raises(Infeasible, match="dp 5 must divide global_batch_size 768"):
            search.plan(question, "holmes", workshop)
