"""What if: each row is what planning the changed topology gives, ranked by tokens a second."""

from __future__ import annotations

import json
import math

import pytest

from holmes_sim import commands, whatif
from holmes_sim.changes import Change
from planner import search
from planner.question import Question, Wishes
from planner.workshop import Workshop

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
    return search.plan(
        Question(where, where.workload, Wishes(), 20.0), "certified", Workshop(Question(where, where.workload, Wishes(), 20.0))
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
        priced = priced.replace(f"clusters.{cluster}.node.devices.price", "2 USD/h")
    answer = whatif.what_if(priced, 20.0, menu=MENU[:3])
    rows = {outcome.change.name: outcome for outcome in answer.outcomes}
    assert rows["a node"].usd_per_h == pytest.approx(2)
    assert rows["a node"].per_cost == pytest.approx(rows["a node"].gain / 2)
    assert (rows["wider"].usd_per_h, rows["wider"].per_cost) == (None, None), "nobody has said what a link costs"
    assert (rows["half the batch"].usd_per_h, rows["half the batch"].per_cost) == (pytest.approx(0), None)


def test_changes_that_promise_most_are_planned_anew_where_time_is_short():
    where, now = commands.load(NAME), by_hand()
    promises = {change.name: whatif._promise(change, where, now) for change in MENU}
    assert promises["a node"] == math.inf, "the present plan has no use for it, so that playing that tells nothing"
    assert promises["wider"] == promises["too small"] == promises["nothing"] == now.tokens_per_s
    assert whatif._promise(MENU[0], where, None) == math.inf
    more = Change("memory", (("clusters.east.node.devices.type.memory", "160 GiB"),))
    assert whatif._promise(more, where, now) == math.inf
    assert whatif._chosen([1.0, math.inf, 2.0], 2) == (1, 2)
    assert whatif._chosen([1.0, math.inf, 2.0], 9) == (1, 2, 0)


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
