"""The command holmes-sim simulate: its report, its explanation, traces and charts."""

from __future__ import annotations

import json

import pytest

from sim.units import time_text


def test_simulate_gives_the_prediction_of_the_plan(run, plan_file):
    seen = run("simulate", plan_file, "--json")
    assert (seen.code, seen.err) == (0, "")
    document = json.loads(seen.out)
    assert list(document) == ["format", "report", "step_range_s", "guessed_rates", "simulation", "confirmed"]
    assert (document["format"], document["confirmed"]) == ("holmes-sim/report/1", True)
    assert document["report"] == json.loads(plan_file.read_text())["prediction"]
    assert set(document["report"]) == {
        "step_s", "samples_per_s", "tokens_per_s", "tflops_per_device", "mfu", "peak_memory_bytes", "bubble_fraction",
        "exposed_communication_s", "upper_bound_fraction", "usd_per_token", "joules_per_token",
    }  # fmt: skip
    least, most = document["step_range_s"]
    assert 0.8 * document["report"]["step_s"] < least < document["report"]["step_s"] < most
    assert set(document["simulation"]) == {"seconds", "events", "ranks", "classes"}
    assert document["simulation"]["ranks"] == 32
    assert 2 <= document["simulation"]["classes"] <= 32


def test_simulate_prints_its_report_as_text(run, plan_file):
    seen = run("simulate", plan_file)
    assert seen.code == 0
    for words in ("Stages", "step", "MFU", "bubble", "exposed communication"):
        assert words in seen.out, words
    assert seen.err.startswith("Simulated 32 ranks in "), "seconds differ from run to run, so they are on stderr"
    assert run("simulate", plan_file).out == seen.out


def test_simulate_prints_an_explanation_as_json(run, plan_file):
    seen = run("simulate", plan_file, "--explain", "--json")
    assert (seen.code, seen.err) == (0, "")
    document = json.loads(seen.out)
    assert list(document) == ["format", "report", "step_range_s", "guessed_rates", "simulation", "confirmed", "explanation"]
    found, step = document["explanation"], document["report"]["step_s"]
    assert list(found) == ["step_s", "ranks", "mean", "critical_path", "chain", "layers"]
    assert found["step_s"] == step
    assert sum(row["ranks"] for row in found["ranks"]) == 32
    for row in found["ranks"]:
        assert sum(row["seconds"].values()) == pytest.approx(step, rel=1e-12)
    assert sum(sum(row["seconds"].values()) for row in found["critical_path"]) == pytest.approx(step, rel=1e-12)
    assert found["mean"]["bubble"] == pytest.approx(document["report"]["bubble_fraction"] * step, rel=1e-12)
    exposed = sum(found["mean"][kind] for kind in ("tp", "pp", "dp", "embedding"))
    assert exposed == pytest.approx(document["report"]["exposed_communication_s"], rel=1e-12)


def test_simulate_prints_an_explanation_as_text(run, plan_file):
    without, seen = run("simulate", plan_file), run("simulate", plan_file, "--explain")
    assert seen.code == 0
    assert seen.out.startswith(without.out)
    words = seen.out.removeprefix(without.out)
    for heading in ("Where a rank's ", "Critical path of ", "Critical path in order"):
        assert heading in words, heading
    rows = {line.split()[0]: line.split() for line in words.splitlines() if line}
    assert rows["stage"][1:] == ["forward", "backward", "optimizer", "tp", "pp", "dp", "embedding"]
    assert "22 x (backward, forward, send)" in words
    assert "One layer and microbatch on a100-sxm4-80gb" in words
    assert rows["qkv"][3] == "compute"


def test_an_input_file_is_not_overwritten(run, plan_file, tmp_path):
    seen = run("simulate", plan_file, "--trace", plan_file)
    assert (seen.code, seen.err) == (2, f"error: {plan_file}: given twice; it would be overwritten\n")


def test_simulate_writes_a_trace_and_a_chart(run, plan_file, tmp_path):
    trace, chart = tmp_path / "timeline.json", tmp_path / "step.png"
    seen = run("simulate", plan_file, "--trace", trace, "--chart", chart, "--json")
    assert (seen.code, seen.err) == (0, "")
    json.loads(seen.out)
    events = json.loads(trace.read_text())["traceEvents"]
    step = json.loads(plan_file.read_text())["prediction"]["step_s"]
    ends = [event["ts"] + event["dur"] for event in events if event["ph"] == "X"]
    assert max(ends) == pytest.approx(step * 1e6, rel=1e-6)
    assert chart.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step.png", "timeline.json"]


def test_a_prediction_that_is_not_confirmed_is_told(run, plan_file, tmp_path):
    document = json.loads(plan_file.read_text())
    promised = document["prediction"]["step_s"]
    document["prediction"]["step_s"] = 2 * promised
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(document))
    line = (
        f"The plan predicts {time_text(2 * promised)} per step, but its simulation gives {time_text(promised)}, which is "
        "shown: the file was changed, or another version of holmes-sim, or another profile, made the prediction. Make a new "
        "plan.\n"
    )
    seen = run("simulate", changed, "--json")
    assert (seen.code, seen.err, json.loads(seen.out)["confirmed"]) == (0, line, False)
    assert run("simulate", changed).err.startswith(line)
    assert run("show", changed).err == line
    assert run("simulate", changed, "--jitter", "1%", "--seeds", 1, "--json").err == line
    del document["prediction"]
    changed.write_text(json.dumps(document))
    seen = run("simulate", changed, "--json")
    assert (seen.err, json.loads(seen.out)["confirmed"]) == ("", None)


def test_simulate_warns_of_memory_that_a_plan_by_hand_lacks(run, plan_file, tmp_path):
    large = tmp_path / "large.json"
    large.write_text(plan_file.read_text().replace('"global_batch_size": 768', '"global_batch_size": 12288').replace(
        '"microbatch_size": 4', '"microbatch_size": 64'))  # fmt: skip
    seen = run("simulate", large)
    assert (seen.code, seen.out.count("more than its device has")) == (0, 2)
    assert "Warning: " not in run("simulate", plan_file).out
