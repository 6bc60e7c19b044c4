"""What if, with sync strategies between islands: what is compared, what is given up, and what an addition may not do."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from holmes_sim import change_planning, changes, commands, printing, whatif
from holmes_sim.change_planning import Answer
from holmes_sim.changes import Change
from holmes_sim.plan_numbers import PlanNumbers
from holmes_sim.requirements import require
from sim.formats.edits import edited
from sim.hardware.topology import Topology
from tests.holmes_sim.test_islands_require import LAYOUT
from tests.holmes_sim.test_printing_whatifs import lines_of

THIN = "10 Mbit/s"
WIDER = Change("wider", (("links[0].bandwidth", "10 Gbit/s"),), adds=True)
MENU = (
    WIDER,
    Change("thinner", (("links[0].bandwidth", "10 kbit/s"),)),
    Change("west: left out", (("links", []), ("clusters.west", None))),
)


def where(bandwidth: str = THIN) -> Topology:
    """Two sites, with a batch of many divisors."""
    facts = {"links[0].bandwidth": bandwidth, "workload.global_batch_size": 64}
    return require(edited(commands.load("lab/lab-slow-trunk"), facts), LAYOUT)


def not_replanned(monkeypatch: pytest.MonkeyPatch) -> None:
    """No change is replanned."""

    def none(*_: object) -> Iterator[Answer]:
        yield from ()

    monkeypatch.setattr(change_planning, "answers", none)


@pytest.fixture(scope="module")
def found() -> whatif.WhatIf:
    with pytest.MonkeyPatch.context() as patch:
        not_replanned(patch)
        return whatif.what_if(where(), 60.0, menu=MENU, sync="streaming-diloco<=30,int8")


def test_a_wider_trunk_lowers_the_inner_steps(found):
    rows = {outcome.change.name: outcome for outcome in found.outcomes}
    assert (found.base.sync, found.base.price) == ("streaming-diloco 30, int8", "bounded")
    assert rows["wider"].gain > 0
    assert rows["wider"].found.inner_steps == 2
    assert rows["thinner"].found.sync == "exact", "one site alone"
    assert rows["west: left out"].found.sync == "exact"
    assert rows["wider"].found.effective == pytest.approx(rows["wider"].tokens_per_s * rows["wider"].found.worth[0])


def test_the_gap_is_to_all_that_was_searched(found):
    answer = found.answer
    assert found.gap == pytest.approx(1 - answer.best.speed / answer.at_most)
    assert 0 < found.gap < 0.5


def test_no_addition_of_the_menu_is_a_loss_with_islands(monkeypatch):
    """Where the searches find nothing but slow plans."""
    slow = PlanNumbers(1e3, 1.0, 0.9, "diloco 100", 100, "bounded", None)
    monkeypatch.setattr(change_planning, "answers", lambda tasks, *_: (Answer(task.index, slow) for task in tasks))
    menu = tuple(change for change in changes.menu(where()) if change.family in ("links[0]", "east: nodes", "west: memory"))
    rows = whatif.what_if(where(), 60.0, menu=menu, sync="streaming-diloco<=30,int8").outcomes
    assert len(rows) == 6
    assert all(row.gain >= -1e-9 for row in rows)


def test_the_table_says_what_each_row_gives_up(found):
    lines = lines_of(printing.what_if(found))
    assert lines[0].startswith("lab-slow-trunk: ")
    assert "with sync streaming-diloco 30, int8 (gives up: islands differ), within " in lines[0]
    (row,) = (line for line in lines if line.startswith("wider"))
    assert "streaming-diloco 2, int8 islands differ" in " ".join(row.split())
    (row,) = (line for line in lines if line.startswith("west: left out"))
    assert "exact nothing" in " ".join(row.split())
    assert any(line.startswith("wider") and " (+" in line for line in lines)
    text = " ".join(lines)
    assert "in brackets, not known: better plans, which are not excluded yet, may make up for the difference." in text
    assert "gain: effective tokens/s (tokens/s x their worth) of the plan found, over those of today's plan." in text
    assert "compare such a plan with an exact one by effective tokens/s only." in text
    assert "today's: today's islands with the sync strategy chosen anew, or exact plan, simulated on the changed" in text


def test_the_command(run, monkeypatch, tmp_path):
    not_replanned(monkeypatch)
    monkeypatch.setattr(whatif.changes, "menu", lambda topology: MENU[:1])
    file = tmp_path / "need.yaml"
    file.write_text(json.dumps({"format": "holmes-sim/require/1"} | LAYOUT))
    seen = run("what-if", "lab/lab-slow-trunk", "--require", file, "--sync", "co2=8,int8", "--json")
    told = json.loads(seen.out)
    assert (told["base"]["sync"], told["base"]["inner_steps"], told["base"]["price"]) == ("co2 8, int8", 8, "bounded")
    assert told["base"]["token_worth"] is None and told["base"]["effective_tokens_per_s"] is None
    assert [(row["sync"], row["how"]) for row in told["rows"]] == [("co2 8, int8", "simulated")]
    wrong = run("what-if", "lab/lab-slow-trunk", "--sync", "dilco")
    assert (wrong.code, wrong.out) == (2, "")
    assert wrong.err.startswith("error: --sync 'dilco': dilco is unknown; known: exact, any, local-steps, ")


def test_a_replanned_change_is_planned_with_islands(monkeypatch):
    monkeypatch.setattr(change_planning, "pooled", lambda work, tasks, count: map(work, tasks))
    task = change_planning.Task(3, where(), None, sync="diloco=30,int8")
    (answer,) = change_planning.answers([task], 1e9, 1.0)
    assert (answer.index, answer.reason, answer.found.sync) == (3, "", "diloco 30, int8")
    one = edited(where(), {"links": [], "clusters.west": None, "clusters.east.nodes": 1})
    alone = change_planning.Task(0, one, None, sync="diloco=30,int8")
    (none,) = change_planning.answers([alone], 1e9, 1.0)
    assert none.reason == (
        "no plan with --sync diloco=30,int8: no link joins two clusters, and the network between nodes is fast enough for the "
        "gradients of each step, so that there are no islands; nodes that may be one anyway need to be a cluster of their own"
    )
