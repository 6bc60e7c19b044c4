"""What if: each row is what planning the changed topology gives, ranked by tokens a second."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest

from holmes_sim import change_planning, commands, present_plans, whatif
from holmes_sim.change_planning import Answer, Task
from holmes_sim.changes import Change
from holmes_sim.outcomes import Outcome
from holmes_sim.plan_numbers import SYNC_FACTS, PlanNumbers
from holmes_sim.requirements import require
from planner import api
from planner.bounds.relaxation import relaxed_bound
from planner.costs.context import PlanningContext
from planner.request import Request, Wishes
from sim.formats.edits import edited
from sim.hardware.topology import Topology
from sim.plan.plan import Plan
from tests.more import after, more

NAME = "lab/lab-slow-trunk"
LIMIT = 120.0
"""Seconds that no search here reaches, on a busy machine either."""
MENU = (
    Change("wider", (("links[0].bandwidth", "80 Gbit/s"),)),
    Change("a node", (("clusters.west.nodes", 3),)),
    Change("half the batch", (("workload.global_batch_size", 16),)),
    Change(
        "too small", (("clusters.east.node.devices.type.memory", "1 MiB"), ("clusters.west.node.devices.type.memory", "1 MiB"))
    ),
    Change("nothing", (("source", "the same machines"),)),
)


@pytest.fixture(scope="module")
def found():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(change_planning, "pooled", in_turn)
        return whatif.what_if(commands.load(NAME), LIMIT, menu=MENU)


@pytest.fixture
def here(monkeypatch):
    monkeypatch.setattr(change_planning, "pooled", in_turn)


def in_turn(work, tasks, count):
    """Plan in this process, which is faster than to start others; the command below starts them."""
    return map(work, tasks)


def by_hand(change=None):
    where = commands.load(NAME)
    where = change.made(where) if change else where
    return api.plan(
        Request(where, where.workload, Wishes(), LIMIT),
        "certified",
        PlanningContext(Request(where, where.workload, Wishes(), LIMIT)),
    ).prediction


@more
def test_the_rows_can_be_confirmed_by_hand(found):
    assert found.plan.prediction == by_hand()
    rows = {outcome.change.name: outcome for outcome in found.outcomes}
    for change in MENU:
        if change.name in ("a node", "half the batch"):
            expected = by_hand(change)
            assert rows[change.name].step_s == expected.step_s
            assert rows[change.name].tokens_per_s == expected.tokens_per_s
            assert rows[change.name].gain == pytest.approx(expected.tokens_per_s / found.base.tokens_per_s - 1)


def test_the_best_stands_first_and_what_has_no_plan_last(found):
    gains = [outcome.gain for outcome in found.outcomes[:-1]]
    assert gains == sorted(gains, reverse=True)
    last = found.outcomes[-1]
    assert (last.change.name, last.gain, last.step_s) == ("too small", None, None)
    assert "memory" in last.reason
    assert {outcome.change.name: outcome.gain for outcome in found.outcomes}["nothing"] == 0


def test_days_do_not_limit_the_present_plan():
    late = require(commands.load(NAME), {"days": {"max": 1, "tokens": "9T"}})
    assert 9e12 / whatif.what_if(late, 0.0, menu=MENU[4:]).base.tokens_per_s > 86400


def test_costs_need_prices(found, monkeypatch):
    """Whatever the plans of the changes are: here, all are as fast."""
    numbers = PlanNumbers(1e-3, 1e6, 0.1)
    monkeypatch.setattr(change_planning, "answers", lambda tasks, *_: (Answer(task.index, numbers) for task in tasks))
    assert {outcome.usd_per_h for outcome in found.outcomes} == {None}
    priced = commands.load(NAME)
    for cluster in ("east", "west"):
        priced = edited(priced, {f"clusters.{cluster}.node.devices.price": "2 USD/h"})
    answer = whatif.what_if(priced, LIMIT, menu=MENU[:3])
    rows = {outcome.change.name: outcome for outcome in answer.outcomes}
    assert rows["a node"].usd_per_h == pytest.approx(2)
    assert rows["a node"].per_cost == pytest.approx(rows["a node"].gain / 2)
    assert (rows["wider"].usd_per_h, rows["wider"].per_cost) == (None, None), "nobody has said what a link costs"
    assert (rows["half the batch"].usd_per_h, rows["half the batch"].per_cost) == (pytest.approx(0), None)


def replanned(monkeypatch: pytest.MonkeyPatch, now: Plan, answer: Callable[[int], Answer]) -> list[Topology]:
    """Make `now` the present plan and `answer(i)` the answer to the change of index i; returns the replanned topologies.

    The clock of the time limit stands still."""
    asked: list[Topology] = []

    def answers(tasks: list[Task], *_: float) -> Iterator[Answer]:
        for task in tasks:
            asked.append(task.topology)
            yield answer(task.index)

    monkeypatch.setattr(present_plans, "api", SimpleNamespace(plan=lambda *_: now, DEFAULT=api.DEFAULT))
    monkeypatch.setattr(change_planning, "answers", answers)
    monkeypatch.setattr(whatif, "time", SimpleNamespace(monotonic=lambda: 0.0))
    return asked


def no_plan(index: int) -> Answer:
    return Answer(index, reason="no plan")


def test_the_present_plan_is_played_for_other_work_too(found, monkeypatch):
    """A step of twice the batch has twice the microbatches; a batch that the replicas cannot share is not simulated."""
    menu = (
        Change("twice", (("workload.global_batch_size", 64),)),
        Change("short", (("workload.seq_len", 512),)),
        Change("odd", (("workload.global_batch_size", 33),)),
    )
    now = found.plan
    replanned(monkeypatch, now, no_plan)
    rows = {outcome.change.name: outcome for outcome in whatif.what_if(commands.load(NAME), 20.0, menu=menu).outcomes}
    config = replace(now.config, num_microbatches=tuple(2 * m for m in now.config.num_microbatches))
    twice = replace(now, workload=replace(now.workload, global_batch_size=64), config=config)
    assert rows["twice"].step_s == commands.simulate(twice).prediction.step_s
    assert rows["twice"].gain > 0, "the same gradients, twice the work"
    assert rows["short"].step_s < now.prediction.step_s
    assert (rows["odd"].step_s, rows["odd"].reason) == (None, "no plan")


def test_a_row_says_how_far_its_plan_can_be_from_the_best(found):
    gaps = {outcome.change.name: outcome.gap for outcome in found.outcomes}
    assert gaps["too small"] is None
    assert gaps["nothing"] == pytest.approx(found.gap)
    assert all(0 <= gap < 1 for name, gap in gaps.items() if name != "too small")


def test_a_row_is_the_faster_of_the_present_plan_and_the_new_one(found, monkeypatch):
    """The new plan takes 5/4 of the present step, with a proven gap of 1/2: no plan takes less than 5/8 of it."""
    base = found.base

    def outcome(answer: Answer) -> Outcome:
        replanned(monkeypatch, found.plan, lambda _: answer)
        (one,) = whatif.what_if(commands.load(NAME), 20.0, menu=MENU[4:]).outcomes
        return one

    slower = outcome(Answer(0, PlanNumbers(1.25 * base.step_s, 0.8 * base.tokens_per_s, 0.5)))
    assert (slower.step_s, slower.tokens_per_s, slower.gain, slower.how) == (base.step_s, base.tokens_per_s, 0.0, "planned")
    assert slower.gap == pytest.approx(0.375), "the bound is of the change, whichever plan is the better"
    faster = outcome(Answer(0, PlanNumbers(0.5 * base.step_s, 2.0 * base.tokens_per_s, 0.25)))
    assert (faster.step_s, faster.gain, faster.how) == (0.5 * base.step_s, 1.0, "planned")
    assert faster.gap == pytest.approx(0.25)
    none = outcome(no_plan(0))
    assert (none.step_s, none.gain, none.how, none.gap) == (base.step_s, 0.0, "simulated", None)


@pytest.mark.parametrize("name", after(1, ["lab/lab-mixed-devices", NAME]))
def test_no_addition_of_the_menu_is_a_loss(name, monkeypatch):
    """Where there is no time to replan, and where the searches find slow plans only."""
    where = commands.load(name)
    slow = Answer(0, PlanNumbers(1e3, 1.0, 0.9))
    monkeypatch.setattr(change_planning, "answers", lambda tasks, *_: (replace(slow, index=task.index) for task in tasks))
    for time_limit in (0.0, 60.0):
        additions = [outcome for outcome in whatif.what_if(where, time_limit).outcomes if outcome.change.adds]
        assert len(additions) > 10
        assert all(outcome.gain is None or outcome.gain >= 0 for outcome in additions)
        assert not time_limit or all(outcome.gain is not None for outcome in additions)


def test_shadow_prices_know_machines_and_not_links():
    """A fifth device does a quarter more work than four. But it waits for a layer on each stage before it, at the begin and at
    the end, so that little of that is gained; half the batch fills and drains twice as often."""

    def per_token(where):
        request = Request(where, where.workload, Wishes(), math.inf)
        return relaxed_bound(request, PlanningContext(request), usual=True) / where.workload.tokens

    where = commands.load(NAME)
    gains = {change.name: per_token(where) / per_token(change.made(where)) - 1 for change in MENU}
    assert gains == {
        "wider": 0, "a node": pytest.approx(0.0363, abs=1e-4), "half the batch": pytest.approx(-0.2049, abs=1e-4),
        "too small": -1, "nothing": 0,
    }  # fmt: skip


def test_changes_that_promise_most_are_planned_anew_first(found, monkeypatch):
    """First what the present plan does not fit, or is other work; then a machine, of which the present plan makes no use, by
    its shadow price; then a link, which has none, by the simulation of the present plan."""
    links = tuple((f"clusters.{name}.node.nics[0].bandwidth", "80 Gbit/s") for name in ("east", "west"))
    menu = (*MENU, Change("faster", links))
    asked = replanned(monkeypatch, found.plan, no_plan)
    rows = {outcome.change.name: outcome for outcome in whatif.what_if(commands.load(NAME), 30.0, menu=menu).outcomes}
    assert 0.0 < rows["faster"].gain < 0.25, "the present plan is faster on faster NICs"
    made = {change.name: change.made(commands.load(NAME)) for change in menu}
    expected = [made[name] for name in ("half the batch", "too small", "a node", "faster", "wider", "nothing")]
    assert [topology.facts() for topology in asked] == [topology.facts() for topology in expected]


def test_where_time_is_short_the_present_plan_is_played_where_most_is_to_be_gained(found, monkeypatch):
    """Each simulation takes 4 s: in 10 s there is time for two, those with the largest gains of the bound; if changes are
    replanned, half of the time is theirs."""
    clock = [0.0]
    monkeypatch.setattr(whatif, "time", SimpleNamespace(monotonic=lambda: clock[-1]))
    now = SimpleNamespace(plan=found.plan, simulation_s=4.0, on=lambda _: clock.append(clock[-1] + 4.0))
    changed = [commands.load(NAME)] * 5
    gains = [0.0, 0.25, 0.1, -1.0, 0.0]
    assert list(whatif._all_simulated(now, changed, gains, 10.0, 99.0)) == [1, 2]
    clock.append(0.0)
    assert list(whatif._all_simulated(now, changed, gains, 10.0, 1.0)) == [1]


def test_the_command_prints_one_document(run):
    seen = run("what-if", NAME, "--time-limit", "5", "--json")
    told = json.loads(seen.out)
    assert set(told["base"]) == {"step_s", "tokens_per_s", "gap", *SYNC_FACTS}
    assert {"change", "step_s", "gain", "cost"} <= set(told["rows"][0])
    assert {"east: left out", "west: 3 nodes, not 2"} <= {row["change"] for row in told["rows"]}


def test_plans_for_a_target_are_all_for_it(run, here):
    """Sequences longer than the learned positions cannot be expressed by Megatron-LM, whatever the layout."""
    where = edited(commands.load("holmes-infiniband-4"), {"workload.global_batch_size": 64})
    menu = (Change("long", (("workload.seq_len", 4096),)), Change("more", (("clusters.ib.nodes", 5),)))
    found = whatif.what_if(where, 20.0, menu=menu, target="megatron")
    assert found.plan.certificate is not None and found.plan.certificate.target == "megatron"
    more, long = found.outcomes
    assert (more.change.name, long.change.name, long.gain) == ("more", "long", None)
    assert long.reason.startswith("megatron cannot express learned_positions 2048: fewer than seq_len 4096")
    wrong = run("what-if", "holmes-infiniband-4", "--for", "megatrn")
    assert (wrong.code, wrong.err) == (2, "error: target 'megatrn' is unknown; did you mean 'megatron'?\n")


def test_a_topology_without_workload_is_one_line(run, tmp_path):
    text = (commands.topologies_folder() / f"{NAME}.yaml").read_text()
    (tmp_path / "bare.yaml").write_text(text[: text.index("workload:")])
    seen = run("what-if", tmp_path / "bare.yaml")
    assert (seen.code, seen.out) == (2, "")
    assert seen.err.startswith("error: topology lab-slow-trunk has no workload")


def test_changes_that_give_equal_fleets_have_one_search_and_equal_results(monkeypatch):
    searched = list[int]()

    def answers(tasks, *_):
        searched.extend(task.index for task in tasks)
        return (Answer(task.index, PlanNumbers(1e-3, 1e6, 0.1)) for task in tasks)

    monkeypatch.setattr(change_planning, "answers", answers)
    menu = (
        Change("a node, east", (("clusters.east.nodes", 3),)),
        Change("a node, west", (("clusters.west.nodes", 3),)),
        Change("wider", (("links[0].bandwidth", "80 Gbit/s"),)),
    )
    rows = {row.change.name: row for row in whatif.what_if(commands.load(NAME), LIMIT, menu=menu).outcomes}
    east, west = rows["a node, east"], rows["a node, west"]
    assert len(searched) == 2 and {0, 1} & set(searched) and 2 in searched
    assert (east.found, east.gain, east.present_step_s) == (west.found, west.gain, west.present_step_s)
