"""What if: each row is what planning the changed topology gives, ranked by tokens a second."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import replace

import pytest

from holmes_sim import commands, whatif
from holmes_sim.changes import Change
from planner import api
from planner.costs.context import PlanningContext
from planner.request import Request, Wishes
from sim.formats.edits import edited

NAME = "lab/lab-slow-trunk"
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
    return whatif.what_if(commands.load(NAME), 20.0, menu=MENU)


def by_hand(change=None):
    where = commands.load(NAME)
    where = change.made(where) if change else where
    return api.plan(
        Request(where, where.workload, Wishes(), 20.0),
        "certified",
        PlanningContext(Request(where, where.workload, Wishes(), 20.0)),
    ).prediction


def test_the_rows_can_be_confirmed_by_hand(found):
    assert found.base == by_hand()
    rows = {outcome.change.name: outcome for outcome in found.outcomes}
    for change in MENU:
        if change.name != "too small":
            promised = by_hand(change)
            assert rows[change.name].step_s == promised.step_s
            assert rows[change.name].tokens_per_s == promised.tokens_per_s
            assert rows[change.name].gain == pytest.approx(promised.tokens_per_s / found.base.tokens_per_s - 1)


def test_the_best_stands_first_and_what_has_no_plan_last(found):
    gains = [outcome.gain for outcome in found.outcomes[:-1]]
    assert gains == sorted(gains, reverse=True)
    last = found.outcomes[-1]
    assert (last.change.name, last.gain, last.step_s) == ("too small", None, None)
    assert "memory" in last.reason
    assert {outcome.change.name: outcome.gain for outcome in found.outcomes}["nothing"] == 0


def test_costs_need_prices(found):
    assert {outcome.usd_per_h for outcome in found.outcomes} == {None}
    priced = commands.load(NAME)
    for cluster in ("east", "west"):
        priced = edited(priced, {f"clusters.{cluster}.node.devices.price": "2 USD/h"})
    answer = whatif.what_if(priced, 20.0, menu=MENU[:3])
    rows = {outcome.change.name: outcome for outcome in answer.outcomes}
    assert rows["a node"].usd_per_h == pytest.approx(2)
    assert rows["a node"].per_cost == pytest.approx(rows["a node"].gain / 2)
    assert (rows["wider"].usd_per_h, rows["wider"].per_cost) == (None, None), "nobody has said what a link costs"
    assert (rows["half the batch"].usd_per_h, rows["half the batch"].per_cost) == (pytest.approx(0), None)


def test_the_present_plan_is_played_for_other_work_too():
    """A step of twice the batch has twice the microbatches; a batch that the replicas cannot share is not played."""
    where = commands.load(NAME)
    now = commands.plan(where, strategy="megatron").plan
    more = whatif._simulated(now, Change("twice", (("workload.global_batch_size", 64),)), where)
    config = dataclasses.replace(now.config, num_microbatches=tuple(2 * m for m in now.config.num_microbatches))
    twice = dataclasses.replace(now, workload=dataclasses.replace(now.workload, global_batch_size=64), config=config)
    assert more is not None
    assert more.step_s == commands.simulate(twice).prediction.step_s
    assert more.tokens_per_s > now.prediction.tokens_per_s, "the same bubble, twice the work"
    longer = whatif._simulated(now, Change("short", (("workload.seq_len", 512),)), where)
    assert longer is not None
    assert longer.step_s < now.prediction.step_s
    assert whatif._simulated(now, Change("odd", (("workload.global_batch_size", 33),)), where) is None


def test_a_row_says_how_far_its_plan_can_be_from_the_best(found):
    gaps = {outcome.change.name: outcome.gap for outcome in found.outcomes}
    assert gaps["too small"] is None
    assert gaps["nothing"] == pytest.approx(found.gap)
    assert all(0 <= gap < 1 for name, gap in gaps.items() if name != "too small")
    now = found.plan
    row = {"status": "planned", "step_s": 2.0, "tokens_per_s": 100.0, "gap": 0.5}
    better = dataclasses.replace(now.prediction, step_s=1.6, tokens_per_s=125.0)
    outcome = whatif._outcome(now, commands.load(NAME), MENU[4], better, row)
    assert (outcome.step_s, outcome.tokens_per_s, outcome.how) == (1.6, 125.0, "planned")
    assert outcome.gap == pytest.approx(1 - 1.0 / 1.6), "the bound is of the change, whichever plan is the better"
    assert whatif._outcome(now, commands.load(NAME), MENU[4], better, None).gap is None


def test_shadow_prices_know_machines_and_not_links():
    """A fifth device does a quarter more work than four: without whole numbers of stages all of it is gained."""
    where = commands.load(NAME)
    present = whatif._relaxed(where)
    gains = {change.name: present / whatif._relaxed(change.made(where)) - 1 for change in MENU}
    assert gains == {
        "wider": 0, "a node": pytest.approx(0.25), "half the batch": pytest.approx(0), "too small": -1, "nothing": 0
    }  # fmt: skip


def test_changes_that_promise_most_are_planned_anew_where_time_is_short():
    now = api.plan(
        question := Request(commands.load(NAME), commands.load(NAME).workload), "certified", PlanningContext(question)
    )
    before, wider = now.prediction, replace(now.prediction, tokens_per_s=2 * now.prediction.tokens_per_s)
    assert whatif._estimate(now, 0.25, before) == 1.25 * before.tokens_per_s, "a machine that the present plan has no use for"
    assert whatif._estimate(now, 0.0, wider) == wider.tokens_per_s, "a link, of which the programme knows no price"
    assert whatif._estimate(now, -1.0, None) == math.inf, "what the present plan does not fit, or is other work"
    assert whatif._chosen([1.0, math.inf, 2.0], 2) == (1, 2)
    assert whatif._chosen([1.0, math.inf, 2.0], 9) == (1, 2, 0)


def test_where_time_is_short_the_present_plan_is_played_where_most_is_to_be_gained():
    now = api.plan(
        question := Request(commands.load(NAME), commands.load(NAME).workload), "certified", PlanningContext(question)
    )
    prices = [0.0, 0.25, 0.0, -1.0, 0.0]
    assert list(whatif._all_simulated(now, MENU, prices, due=-math.inf)) == [1]
    whole = whatif._all_simulated(now, MENU, prices, due=math.inf)
    assert list(whole) == [1, 0, 2, 4, 3]
    assert (whole[2], whole[3], whole[4]) == (None, None, now.prediction), "other work, too little memory, the same machines"


def test_the_command_prints_one_document(run):
    seen = run("what-if", NAME, "--time-limit", "5", "--json")
    told = json.loads(seen.out)
    assert set(told["base"]) == {"step_s", "tokens_per_s", "gap"}
    assert {"change", "step_s", "gain", "cost"} <= set(told["rows"][0])
    assert {"east: left out", "west: 3 nodes, not 2"} <= {row["change"] for row in told["rows"]}


def test_a_topology_without_workload_is_one_line(run, tmp_path):
    text = (commands.topologies_folder() / f"{NAME}.yaml").read_text()
    (tmp_path / "bare.yaml").write_text(text[: text.index("workload:")])
    seen = run("what-if", tmp_path / "bare.yaml")
    assert (seen.code, seen.out) == (2, "")
    assert seen.err.startswith("error: topology lab-slow-trunk has no workload")
