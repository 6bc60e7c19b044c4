"""Cost and energy on the command line: plans for another objective, Pareto fronts, missing prices."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from holmes_sim import commands
from tests.holmes_sim.cli.arguments import HYBRID


@pytest.fixture
def priced(tmp_path) -> Path:
    """holmes-hybrid-4 with a price of 2 USD/h per device: a plan on one cluster is cheaper than one on both."""
    text = (commands.topologies_folder() / "holmes-hybrid-4.yaml").read_text()
    path = tmp_path / "priced.yaml"
    path.write_text(text.replace("count: 8}", "count: 8, price: 2.00 USD/h}"))
    return path


LITTLE = ("--tp", "2", "--dp", "8", "--microbatch-size", "4", "--recompute", "none", "--schedule", "1f1b")


def test_a_plan_has_its_energy_and_with_prices_its_cost(run, plan_file, priced, tmp_path):
    prediction = json.loads(plan_file.read_text())["prediction"]
    assert prediction["usd_per_token"] is None
    seen = run("simulate", plan_file)
    assert f"{prediction['joules_per_token']:.4g} J per token" in seen.out
    assert "USD" not in seen.out
    seen = run("plan", priced, *HYBRID[2:], "-o", tmp_path / "plan.json")
    document = json.loads((tmp_path / "plan.json").read_text())
    tokens = 768 * 2048
    assert document["prediction"]["usd_per_token"] == pytest.approx(32 * 2 / 3600 * prediction["step_s"] / tokens, rel=1e-9)
    assert "USD per million tokens" in seen.out


def test_the_cheapest_plan_is_compared_with_the_fastest(run, priced, tmp_path):
    seen = run("plan", priced, *LITTLE, "--objective", "cost", "-o", tmp_path / "plan.json")
    assert seen.code == 0, seen.err
    for words in ("the fastest", "more by", "of this plan's cost could be saved", "USD per million tokens"):
        assert words in seen.out, words
    document = json.loads((tmp_path / "plan.json").read_text())
    jsonschema.validate(document, json.loads(run("schema", "plan").out))
    assert len({device.split("/")[0] for device in document["placement"]}) == 1
    certificate = document["certificate"]
    assert (certificate["objective"], certificate["objective_s"]) == ("cost", document["prediction"]["step_s"])
    assert certificate["gap"] == 1 - certificate["lower_bound_per_token"] / document["prediction"]["usd_per_token"]
    assert run("simulate", tmp_path / "plan.json").code == 0


def test_a_front_is_printed_drawn_and_written(run, priced, tmp_path):
    seen = run("plan", priced, *LITTLE, "--pareto", "-o", tmp_path / "plans", "--chart", tmp_path / "front.svg", "--json")
    assert seen.code == 0, seen.err
    document = json.loads(seen.out)
    assert document["objectives"] == ["step-time", "cost", "energy"]
    rows = document["rows"]
    assert len(rows) >= 2
    assert [row["step_s"] for row in rows] == sorted(row["step_s"] for row in rows)
    assert sorted(path.name for path in (tmp_path / "plans").iterdir()) == [f"{n}.json" for n in range(1, len(rows) + 1)]
    for number, row in enumerate(rows, 1):
        plan = json.loads((tmp_path / "plans" / f"{number}.json").read_text())
        for key in ("step_s", "samples_per_s", "usd_per_token", "joules_per_token"):
            assert row[key] == plan["prediction"][key]
        assert sum(row["devices"].values()) >= len(plan["placement"])
        assert row["config"] == plan["config"]
    assert (tmp_path / "front.svg").read_bytes()[:5] == b"<?xml"
    unpriced = run("plan", "holmes-hybrid-4", *LITTLE, "--pareto")
    for words in ("Plans to choose from", "J per", "No cost: not every device has a price."):
        assert words in unpriced.out, words


def test_a_missing_price_is_one_line_and_exit_code_2(run):
    seen = run("plan", "holmes-hybrid-4", "--objective", "cost")
    assert (seen.code, seen.out) == (2, "")
    assert seen.err == (
        "error: objective cost: no price known of a100-sxm4-80gb of cluster ib, a100-sxm4-80gb of cluster roce; "
        "give it in the topology, clusters.ib.node.devices.price: 2.50 USD/h\n"
    )


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--objective", "speed"), "objective 'speed' is unknown; known: step-time, cost, energy"),
        (
            ("--objective", "energy", "--strategy", "holmes"),
            "strategy holmes plans for the step time only; leave it out, or the objective energy",
        ),
        (
            ("--pareto", "--objective", "energy"),
            "--pareto uses strategy certified and all objectives; leave out --strategy, --objective and --explain",
        ),
        (
            ("--chart", "front.png"),
            "--chart needs --pareto; `holmes-sim simulate PLAN --chart FILE` draws a plan",
        ),
        (("--pareto", "--chart", "front.txt"), "front.txt: a picture ends in one of .png, .svg, .pdf, not in .txt"),
    ],
)
def test_options_that_contradict_an_objective_are_refused(run, options, line):
    seen = run("plan", "holmes-hybrid-4", *options)
    assert (seen.code, seen.out, seen.err) == (2, "", f"error: {line}\n")
