"""plan --sync --pareto: the table, the chart, the files and the document."""

from __future__ import annotations

import json

import pytest

import holmes_sim as hs
from holmes_sim import charts, printing
from holmes_sim.islands_front import IslandsFront
from sim.plan.islands import IslandsPlan
from tests.holmes_sim.test_islands_require import where
from tests.holmes_sim.test_printing_whatifs import lines_of


@pytest.fixture(scope="module")
def found() -> IslandsFront:
    return hs.pareto_islands(where({}), sync="any", time_limit=10.0)


def test_the_front_has_exact_plans_and_islands(found):
    prices = [row.price for row in found.rows]
    assert prices[0] == "bounded" and "exact" in prices
    speeds = [row.speed for row in found.rows]
    assert speeds == sorted(speeds, reverse=True)
    assert found.has_costs and found.unknown > 10 and len(found.others) > 10
    assert all(row.worth is not None for row in found.rows)
    exact = next(row for row in found.rows if row.price == "exact")
    row = found.facts()["rows"][found.rows.index(exact)]
    assert (row["sync"], row["islands"], row["devices"]) == ("exact", [["east"]], 4)
    assert row["usd_per_effective_token"] == pytest.approx(4 * 2 / 3600 / exact.speed)


def test_the_table_says_what_is_given_up(found):
    lines = lines_of(printing.islands_front(found))
    (first,) = (line.split() for line in lines if line.startswith("1 "))
    assert first[1] == f"{found.rows[0].tokens_per_s:,.0f}" and "islands" in first
    text = " ".join(lines)
    assert f"{found.unknown} plans are not compared: what a token of their strategies is worth is unknown." in text
    assert "compare such a plan with an exact one by effective tokens/s only." in text


def test_the_chart_has_a_panel_for_steps_and_one_for_money(found):
    steps, money = charts.islands_front(found).axes
    assert steps.get_xlabel().startswith("inner steps between exchanges")
    assert money.get_xlabel() == "USD per million effective tokens"
    points = {line.get_gid(): line.get_xydata().tolist() for line in steps.lines}
    exact = [row for row in found.rows if row.price == "exact"]
    assert points["exact"] == [[1.0, row.speed] for row in exact]
    assert [text.get_text() for text in steps.texts] == [str(number) for number in range(1, len(found.rows) + 1)]


def test_the_command_writes_the_plans(run, tmp_path):
    pins = ("--tp", 1, "--pp", 1, "--microbatch-size", 1, "--schedule", "1f1b", "--zero-stage", 1, "--recompute", "none")
    words = ("plan", "lab/lab-slow-trunk", *pins, "--sync", "diloco<=8,int8", "--pareto", "-o", tmp_path / "front")
    seen = run(*words, "--chart", tmp_path / "front.png", "--json", "--set", "links[0].bandwidth=10 Mbit/s")
    document = json.loads(seen.out)
    assert (document["format"], document["allowed"]) == ("holmes-sim/islands-pareto/1", "diloco<=8,int8")
    assert [row["usd_per_effective_token"] for row in document["rows"]] == [None] * len(document["rows"])
    assert (tmp_path / "front.png").stat().st_size > 10_000
    for number, row in enumerate(document["rows"], 1):
        plan = hs.read_islands(tmp_path / "front" / f"{number}.json") if len(row["islands"]) > 1 else None
        assert plan is None or (isinstance(plan, IslandsPlan) and plan.sync.inner_steps == row["inner_steps"])
