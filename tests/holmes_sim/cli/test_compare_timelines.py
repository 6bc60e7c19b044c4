"""The commands holmes-sim compare PLAN TIMELINE and show TIMELINE."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import holmes_sim as hs
from sim.engine.timeline import stretched, to_json
from sim.formats import planfile


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A plan, its simulated timeline, a timeline marked as measured at scale 20 and 25% longer, and one of another plan."""
    folder = tmp_path_factory.mktemp("measured")
    wishes = hs.Wishes(tp=2, pp=2, dp=8, microbatch_size=16, recompute="none", schedule="1f1b")
    plan = hs.plan(hs.load("holmes-hybrid-4"), strategy="megatron", wishes=wishes).plan
    timeline = hs.simulate(plan).timeline
    slow = stretched(timeline, 25.0)
    measured = replace(
        slow, origin="measured", compute="paced", scale=20.0, steps_s=(0.9 * slow.step_s, slow.step_s, 1.1 * slow.step_s)
    )
    texts = {"plan": planfile.to_json(plan), "simulated": to_json(timeline), "measured": to_json(measured)}
    texts["again"] = texts["plan"]
    texts["other"] = to_json(replace(measured, plan_digest="0123456789abcdef"))
    for name, text in texts.items():
        (folder / f"{name}.json").write_text(text)
    return {name: folder / f"{name}.json" for name in texts}


def test_a_simulated_timeline_has_no_error(run, files):
    seen = run("compare", files["plan"], files["simulated"])
    assert (seen.code, seen.err) == (0, "")
    rows = [line.split() for line in seen.out.splitlines()]
    step = next(row for row in rows if row[:1] == ["step"])
    assert len(set(step[1:4])) == 1 and step[4] == "+0.0%"
    errors = {word for row in rows for word in row if word.endswith("%")}
    assert errors == {"+0.0%"}


def test_predicted_simulated_and_measured_times_are_compared(run, files, monkeypatch):
    monkeypatch.chdir(files["plan"].parent)
    seen = run("compare", "measured.json", "plan.json")
    assert (seen.code, seen.err) == (0, "")
    lines = [line.rstrip() for line in seen.out.splitlines()]
    assert lines[0].startswith("holmes-hybrid-4: gpt-3.6b ")
    assert lines[3].startswith("measured.json: measured step of ")
    assert " with paced compute, the median of 3 (from " in lines[3]
    assert lines[4] == "Predicted and simulated times are multiplied by 20, the time scale of this run."
    for title in ("Step, mean over ranks (in s)", "Stages, mean over ranks (in s)", "Communication, mean over ranks (in s)"):
        assert title in lines
    errors = {word for line in lines for word in line.split() if word.endswith("%")}
    assert errors == {"-20.0%"}, "everything took a quarter longer"
    messages = [line.split()[:3] for line in lines if line.split()[1:2] == ["pp"]]
    assert messages == [["0", "pp", "activations"], ["1", "pp", "gradients"]]


def test_compare_draws_and_prints_one_document(run, files, tmp_path):
    chart = tmp_path / "both.png"
    seen = run("compare", files["plan"], files["measured"], "--json", "--chart", chart)
    assert (seen.code, seen.err) == (0, "")
    (row,) = json.loads(seen.out)["rows"]
    assert (row["scale"], row["compute"], row["origin"]) == (20.0, "paced", "measured")
    assert row["step"]["error"] == pytest.approx(-0.2) and row["step"]["spread"] == pytest.approx(0.2)
    assert row["step"]["predicted_s"] == pytest.approx(0.8 * row["step"]["measured_s"])
    assert [stage["ranks"] for stage in row["stages"]] == [16, 16]
    assert chart.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


WRONG = {
    ("plan", "other"): "{other}: plan_digest: '0123456789abcdef' belongs to another plan; timelines of this plan have ",
    ("plan",): (
        "{plan}: a plan without timelines; compare takes one plan and its timelines "
        "(run, lab and simulate --trace write timelines)\n"
    ),
    ("measured",): "compare takes one plan and its timelines; no plan is given\n",
    ("plan", "again", "measured"): "compare takes one plan and its timelines; 2 plans are given: {plan} {again}\n",
    ("plan", "again", "--tp", "2"): "--tp 2: several plans are compared without options, but for --json\n",
    ("plan", "measured", "--tp", "2", "--time-limit", "9"): (
        "--time-limit --tp 2: only for a topology; with a plan and timelines use --chart, --profile and --json\n"
    ),
    ("plan", "measured", "--set", "clusters.ib.nodes=3"): (
        "--set clusters.ib.nodes=3: only for a topology; with a plan and timelines use --chart, --profile and --json\n"
    ),
    ("plan", "measured", "holmes-hybrid-4"): (
        "holmes-hybrid-4: a topology; compare takes one topology, several plans, or a plan and its timelines\n"
    ),
    ("plan", "measured", "--chart", "step.txt"): "step.txt: a picture ends in one of .png, .svg, .pdf, not in .txt\n",
    ("plan", "nowhere.json"): "nowhere.json: no such file; `holmes-sim plan TOPOLOGY -o plan.json` makes a plan\n",
}


@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_wrong_input_of_compare_is_one_line(run, files, arguments):
    seen = run("compare", *(files.get(word, word) for word in arguments))
    assert (seen.code, seen.out) == (2, "")
    assert len(seen.err.splitlines()) == 1
    assert seen.err.startswith(f"error: {WRONG[arguments].format(**files)}")


def test_a_chart_does_not_overwrite_a_timeline(run, files):
    seen = run("compare", files["plan"], files["measured"], "--chart", files["measured"])
    assert (seen.code, seen.err) == (2, f"error: {files['measured']}: given twice; it would be overwritten\n")


def test_show_a_timeline(run, files, tmp_path):
    seen = run("show", files["measured"], "-o", tmp_path / "step.svg")
    assert (seen.code, seen.err) == (0, f"Written to {tmp_path / 'step.svg'}.\n")
    assert seen.out.startswith("holmes-hybrid-4 gpt-3.6b: measured step of ")
    assert "tokens/s at scale 20, of plan " in seen.out
    assert [line.split()[:2] for line in seen.out.splitlines()][4:8] == [
        ["stage", "ranks"],
        ["0", "16"],
        ["1", "16"],
        ["all", "32"],
    ]
    assert "<svg" in (tmp_path / "step.svg").read_text()
    document = json.loads(run("show", files["measured"], "--json").out)
    assert (document["scale"], [stage["stage"] for stage in document["stages"]]) == (20.0, [0, 1])


def test_a_broken_timeline_is_one_line(run, files, tmp_path):
    broken = tmp_path / "broken.json"
    broken.write_text(files["measured"].read_text().replace('"scale":20.0', '"scale":0'))
    for command in (("show", broken), ("compare", files["plan"], broken)):
        seen = run(*command)
        assert (seen.code, seen.out) == (2, "")
        assert seen.err == f"error: {broken}:1: metadata.scale: 0: input should be greater than 0\n"
