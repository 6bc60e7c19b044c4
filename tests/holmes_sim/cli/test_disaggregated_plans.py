"""Commands on the file of a plan with two sets of ranks, and those that take something else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from holmes_sim import commands, exporters, reporting
from holmes_sim.attention_and_experts import Disaggregated
from sim.formats import disaggregatedfile
from tests.two_rank_sets import plan

STEP = 0.0424425329150792


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "split.json"
    path.write_text(disaggregatedfile.to_json(plan()), encoding="utf-8")
    return path


def test_simulate_prints_both_sets_and_writes_a_timeline(run, file, tmp_path):
    trace, chart = tmp_path / "timeline.json", tmp_path / "step.png"
    seen = run("simulate", file, "--trace", trace, "--chart", chart)
    assert (seen.code, seen.err) == (0, f"Written to {trace}. Written to {chart}.\n")
    lines = [line.split() for line in seen.out.splitlines()]
    assert ["attention", "new", "a40", "2", "1", "69.9%", "2.5", "GiB", "6%"] in lines
    assert ["experts", "old", "v100-sxm2-32gb", "1", "6", "69.4%", "2.6", "GiB", "9%"] in lines
    assert ["step", "42.44", "ms"] in lines
    assert chart.stat().st_size > 0
    assert "two-types small: simulated step of 42.44 ms" in run("show", trace).out


def test_simulate_as_json_has_the_predicted_step(run, file):
    found = json.loads(run("simulate", file, "--json").out)
    assert (found["report"]["step_s"], found["confirmed"]) == (pytest.approx(STEP), True)
    changed = file.read_text().replace('"step_s": 0.04', '"step_s": 0.05')
    file.write_text(changed)
    assert json.loads(run("simulate", file, "--json").out)["confirmed"] is False
    assert "Warning: the plan predicts a step of 52.44 ms; this simulation gives another one." in run("simulate", file).out


def test_show_prints_the_step_or_the_file(run, file):
    assert json.loads(run("show", file, "--json").out) == json.loads(file.read_text())
    assert "attention on 2 devices of new, experts on 1 of old, 2 x 2 microbatches of 1" in run("show", file).out


@pytest.mark.parametrize("words", ["--explain", "--profile cpu", "--leave 1@2h", "--jitter 3%"])
def test_options_that_it_does_not_take(run, file, words):
    seen = run("simulate", file, *words.split())
    line = f"error: {file}: a plan with two sets of ranks takes no --explain, --profile, --leave and no faults\n"
    assert (seen.code, seen.out, seen.err) == (2, "", line)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("goodput FILE --checkpoint 60s --restart 60s", "a plan with one set of ranks is expected"),
        ("replan FILE --lost new/node0", "a plan with one set of ranks is expected"),
        ("place-experts FILE --counts counts.yaml", "a plan with one set of ranks is expected"),
        ("plan FILE", "a topology is expected"),
        ("check FILE", "a topology is expected"),
        ("what-if FILE", "a topology is expected"),
        ("trunk FILE", "a topology is expected"),
        ("serve FILE", "a topology is expected"),
        ("sweep FILE plan.tp=1", "a topology is expected"),
    ],
)
def test_in_place_of_something_else(run, file, words, expected):
    seen = run(*(word.replace("FILE", str(file)) for word in words.split()))
    line = f"error: {file}:2: format: this is a plan with two sets of ranks; {expected}\n"
    assert (seen.code, seen.out, seen.err) == (2, "", line)


@pytest.mark.parametrize("target", [name for name in exporters.every() if name not in exporters.of_run()])
def test_other_targets_refuse_it(run, file, tmp_path, target):
    seen = run("export", file, "--to", target, "-o", tmp_path / "launch")
    told = "attention and experts on two sets of ranks; targets that start `holmes-sim run`: slurm, torchrun"
    line = f"error: {target} cannot express {told}\n"
    assert (seen.code, seen.out, seen.err) == (2, "", line)
    assert not (tmp_path / "launch").exists()


def test_its_ranks_are_started_by_torchrun_or_here(run, file):
    seen = run("run", file)
    line = f"error: {file}: start its 3 ranks with torchrun, or all of them on this machine with --local\n"
    assert (seen.code, seen.out, seen.err) == (2, "", line)


PLAN = ("plan", "lab/lab-hybrid-nics", "--strategy", "megatron", "--tp", 1, "--pp", 2, "--dp", 2, "--microbatch-size", 1)


def test_plan_writes_it_beside_the_plan(run, tmp_path, monkeypatch):
    """Where it is faster than the plan; the note names both files. A later plan without one removes it."""
    split, output = Disaggregated(plan().stage, STEP, 0.1), tmp_path / "plan.json"
    monkeypatch.setattr(commands.attention_and_experts, "compared", lambda found, plan: split)
    seen = run(*PLAN, "-o", output)
    written = Path(tmp_path / "plan.disaggregated.json")
    assert seen.code == 0
    assert f"Written to {output} and {written}.\n" in seen.err
    found = disaggregatedfile.load(written)
    assert (found.stage, found.made_by.strategy) == (plan().stage, "zebra")
    assert found.prediction == plan().prediction
    assert "Removed" not in run(*PLAN, "-o", output).err
    monkeypatch.undo()
    later = run(*PLAN, "-o", output)
    assert (later.code, written.exists()) == (0, False)
    assert f"Removed {written}, which belonged to an earlier plan.\n" in later.err


def test_a_file_of_another_kind_beside_a_plan_stays(run, tmp_path):
    other = tmp_path / "plan.disaggregated.json"
    other.write_text('{"mine": 1}')
    assert run(*PLAN, "-o", tmp_path / "plan.json").code == 0
    assert other.read_text() == '{"mine": 1}'


def test_report_is_a_page(run, file, tmp_path):
    seen = run("report", file, "-o", tmp_path / "page.html")
    assert seen.code == 0
    assert (tmp_path / "page.html").read_text() == reporting.report(plan())
    seen = run("report", file, "-o", tmp_path / "page.html", "--strategies", "holmes")
    line = f"error: {file}: the report of a plan with two sets of ranks takes no --strategies and --profile\n"
    assert (seen.code, seen.err) == (2, line)


def test_compare_takes_the_plan_and_a_timeline_of_it(run, file, tmp_path):
    """A simulated timeline in place of a measured one: no error."""
    trace = tmp_path / "timeline.json"
    run("simulate", file, "--trace", trace)
    seen = run("compare", file, trace)
    assert seen.code == 0
    assert ["step", "42.44", "ms", "42.44", "ms", "+0.0%"] in [line.split() for line in seen.out.splitlines()]
    found = json.loads(run("compare", file, trace, "--json").out)
    assert (found["format"], round(found["error"], 6)) == ("holmes-sim/disaggregated-run/1", 0.0)
    seen = run("compare", file)
    line = f"error: {file}: compare takes such a plan with two sets of ranks and one timeline of it (of run or lab)\n"
    assert (seen.code, seen.err) == (2, line)
    other = replace(plan(), stage=replace(plan().stage, recompute="full"), prediction=None)
    file.write_text(disaggregatedfile.to_json(other))
    seen = run("compare", file, trace)
    digest = disaggregatedfile.digest(plan())
    assert (seen.code, seen.err) == (2, f"error: {trace}: it is a timeline of plan {digest}, not of {file}\n")
