"""The command holmes-sim compare with a topology: a row for each strategy."""

from __future__ import annotations

import json
import re

import pytest

from holmes_sim import comparisons
from tests.holmes_sim.cli.arguments import PINNED

QUICK = ("compare", "holmes-hybrid-4", "--strategies", "megatron,holmes", *PINNED)
ROW = [
    "name", "step_s", "step_range_s", "guessed_rates", "samples_per_s", "tokens_per_s_per_device", "upper_bound_fraction",
    "slower_than_best", "told_apart_from_best", "planning_s", "reason_if_none", "config", "devices", "read_by",
]  # fmt: skip


def test_compare_prints_a_row_for_each_strategy(run):
    """Megatron's and Holmes' plans are the same here, 15 layers on either cluster: both are the fastest."""
    seen = run(*QUICK)
    assert (seen.code, seen.err) == (0, "")
    lines = [line.rstrip() for line in seen.out.splitlines()]
    assert lines[:4] == [
        "holmes-hybrid-4: gpt-3.6b (3.56 B parameters), batch 768 x 2048 tokens fp16, 32 devices",
        "pinned: --tp 2 --pp 2 --dp 8 --microbatch-size 4 --recompute none --cp 1",
        "",
        "Strategies, the fastest first",
    ]
    assert lines[4].split() == ["step", "tokens/s", "of", "compute-", "slower", "planned"]
    second = "strategy 80 % range samples/s per device only speed by in layout"
    assert lines[5].split() == second.split()
    for line, name in zip(lines[6:10:2], ("megatron", "holmes"), strict=True):
        assert line.split()[0] == name and line.split()[6] == "fastest"
        assert line.endswith(" tp 2, pp 2, dp 8, mb 4, 1f1b: ib 15, roce 15")
    assert [re.fullmatch(r" +\d+\.\d+-\d+\.\d+ s", line) is not None for line in lines[7:10:2]] == [True, True]


def test_compare_plans_the_edited_topology(run):
    """One node of each cluster in place of two: 4 replicas of tp 2, pp 2."""
    pinned = ("--tp", 2, "--pp", 2, "--dp", 4, "--microbatch-size", 4, "--recompute", "none")
    arguments = ("compare", "holmes-hybrid-4", "--strategies", "holmes", *pinned)
    one = ("--set", "clusters.ib.nodes=1", "--set", "clusters.roce.nodes=1")
    assert run(*arguments, *one).out.splitlines()[0].endswith("batch 768 x 2048 tokens fp16, 16 devices")
    (row,) = json.loads(run(*arguments, *one, "--json").out)["rows"]
    assert row["devices"] == {"ib": 8, "roce": 8}
    assert run(*arguments, "--set", "clusters.ib.nodes").err.startswith("error: --set 'clusters.ib.nodes' should be KEY=VALUE")


def test_compare_prints_one_document_in_the_requested_order(run):
    """Megatron needs equal stages, and 8 does not divide 30 layers; holmes takes four stages in each cluster."""
    pinned = ("--tp", 1, "--pp", 8, "--dp", 4, "--microbatch-size", 4, "--recompute", "none")
    seen = run("compare", "holmes-hybrid-4", "--strategies", "megatron,holmes", *pinned, "--json")
    assert (seen.code, seen.err) == (0, "")
    document = json.loads(seen.out)
    assert (list(document), document["interrupted"]) == (["format", "rows", "interrupted"], False)
    assert [row["name"] for row in document["rows"]] == ["megatron", "holmes"]
    assert all(list(row) == ROW and row["planning_s"] > 0 for row in document["rows"])
    lost, won = document["rows"]
    assert {lost[key] for key in (*ROW[1:9], *ROW[11:])} == {None}
    assert lost["reason_if_none"].startswith("no layout with equal stages over all devices ")
    assert won["reason_if_none"] is None and won["slower_than_best"] == 0.0
    layout = {"tp": 1, "pp": 8, "dp": 4, "microbatch_size": 4, "schedule": "1f1b", "num_microbatches": [48] * 4}
    assert won["config"].items() >= layout.items()
    assert won["devices"] == {"ib": 16, "roce": 16} and won["read_by"] is None
    least, most = won["step_range_s"]
    assert least < won["step_s"] < most and (won["guessed_rates"], won["told_apart_from_best"]) == ([], None)
    assert won["samples_per_s"] == pytest.approx(768 / won["step_s"], rel=1e-12)
    assert won["tokens_per_s_per_device"] == pytest.approx(768 * 2048 / won["step_s"] / 32, rel=1e-12)


def test_compare_prints_why_a_strategy_has_no_plan(run):
    """Strategy holmes has no layout of three stages; certified takes 24 of the 32 devices."""
    pinned = ("--tp", 2, "--pp", 3, "--dp", 4, "--microbatch-size", 4, "--recompute", "none", "--schedule", "1f1b")
    seen = run("compare", "holmes-hybrid-4", "--strategies", "holmes,certified", *pinned)
    assert seen.code == 0
    lines = [line.rstrip() for line in seen.out.splitlines()]
    assert lines[6].startswith("certified ") and "fastest" in lines[6] and lines[6].endswith(" (24 of 32 devices)")
    assert lines[8].split()[:6] == ["holmes", *"-----"] and lines[8].endswith("no plan, see below")
    assert lines[9:] == [
        "",
        "What rows and columns mean: docs/tables.md",
        "",
        "No plan",
        "holmes: no layout of whole stages per cluster fits the memory and the batch; use strategy certified",
    ]


def test_compare_marks_plans_that_cannot_be_told_apart(run, monkeypatch):
    """Plans whose predictions differ by less than the resolution, here a factor of ten."""
    monkeypatch.setattr("holmes_sim.resolution.resolution", lambda fitted, several: 10.0)
    arguments = ("compare", "mixed-h100-a100-v100", "--strategies", "holmes,alpa", "--tp", 4)
    lines = run(*arguments).out.splitlines()
    assert lines[6].startswith("alpa ") and " fastest " in lines[6]
    assert lines[8].startswith("holmes ") and " ~ " in lines[8]
    assert lines[-3].startswith("~ cannot be told apart: predicted differences below 900% are ordered wrongly in ")
    assert lines[-2] == "Rests on guessed rates of v100-sxm2-32gb: alpa, holmes."


def test_compare_has_the_numbers_of_the_plans_that_it_writes(run, tmp_path):
    folder, chart = tmp_path / "new" / "plans", tmp_path / "strategies.png"
    seen = run(*QUICK, "--json", "-o", folder, "--chart", chart)
    assert (seen.code, seen.err) == (0, "")
    assert sorted(path.name for path in folder.iterdir()) == ["holmes.json", "megatron.json"]
    for row in json.loads(seen.out)["rows"]:
        plan = json.loads((folder / f"{row['name']}.json").read_text())
        assert plan["made_by"]["strategy"] == row["name"]
        for key in ("step_s", "samples_per_s", "upper_bound_fraction"):
            assert row[key] == plan["prediction"][key]
    assert chart.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert run(*QUICK, "-o", folder, "--chart", chart).err == f"Written to {folder}. Written to {chart}.\n"


def test_compare_runs_all_strategies_by_default(run):
    pinned = ("--tp", 2, "--pp", 2, "--dp", 2, "--microbatch-size", 1, "--schedule", "1f1b")
    rows = json.loads(run("compare", "peers/galvatron-8", *pinned, "--json").out)["rows"]
    assert [row["name"] for row in rows] == json.loads(run("list", "strategies", "--json").out)["names"]


def test_an_interrupted_compare_prints_the_finished_rows(run, monkeypatch):
    def stopped(question, context):
        raise KeyboardInterrupt

    monkeypatch.setattr("planner.strategies.holmes.plan", stopped)
    seen = run(*QUICK)
    assert (seen.code, seen.err) == (0, "Interrupted: not planned: holmes.\n")
    assert [line.split()[:1] for line in seen.out.splitlines()[6:]] == [["megatron"], ["8.93-12.5"], [], ["What"]]
    document = json.loads(run(*QUICK, "--json").out)
    assert (document["interrupted"], [row["name"] for row in document["rows"]]) == (True, ["megatron"])
    seen = run("compare", "holmes-hybrid-4", "--strategies", "holmes,megatron")
    assert (seen.code, seen.out, seen.err) == (130, "", ""), "nothing was done"


def test_an_interrupted_search_has_the_best_plan_so_far(run, monkeypatch):
    from planner.strategies import megatron

    def stopped(question, context):
        context.interrupted = True
        return megatron.plan(question, context)

    monkeypatch.setattr("planner.strategies.holmes.plan", stopped)
    seen = run("compare", "holmes-hybrid-4", "--strategies", "holmes,certified,megatron", *PINNED)
    assert seen.err == "Interrupted: the plan of holmes is the best found so far; not planned: certified, megatron.\n"


def test_compare_without_any_plan_ends_with_exit_code_3(run, tmp_path):
    """The reason of each strategy, or the common one; stdout is empty and nothing is written."""
    pinned = ("--tp", 2, "--pp", 3, "--dp", 4)
    seen = run("compare", "holmes-hybrid-4", "--strategies", "megatron,holmes", *pinned, "--json")
    assert (seen.code, seen.out) == (3, "")
    assert seen.err.splitlines() == [
        "error: megatron: no layout with equal stages over all devices divides the layers and the batch and fits the memory; "
        "use strategy certified",
        "error: holmes: no layout of whole stages per cluster fits the memory and the batch; use strategy certified",
    ]
    seen = run(*QUICK[:4], "--dp", "5", "-o", tmp_path, "--chart", tmp_path / "chart.png")
    assert (seen.code, seen.out) == (3, "")
    assert seen.err == "error: no layout fits --dp 5; dp 5 must divide global_batch_size 768; use strategy certified\n"
    assert list(tmp_path.iterdir()) == []


def test_compare_checks_its_output_files_first(run, tmp_path, monkeypatch):
    monkeypatch.setattr(comparisons, "compare", lambda *_: pytest.fail("work was done"))
    seen = run(*QUICK, "--chart", tmp_path / "chart.txt")
    assert seen.err == f"error: {tmp_path / 'chart.txt'}: a picture ends in one of .png, .svg, .pdf, not in .txt\n"
    (tmp_path / "plans").write_text("a file")
    seen = run(*QUICK, "-o", tmp_path / "plans")
    assert (seen.code, seen.err) == (2, f"error: {tmp_path / 'plans'}: cannot be created: File exists\n")
