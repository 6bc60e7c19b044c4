"""The command holmes-sim sweep."""

from __future__ import annotations

import json

import pytest

STUDY = """format: holmes-sim/study/1
name: mine
topology: lab/lab-hybrid-nics
plan: {tp: 1, microbatch_size: 1, recompute: none, schedule: 1f1b, strategy: megatron}
vary:
  links[0].bandwidth: [1 Gbit/s, 5 Gbit/s]
  plan.pp: [2, 3]
"""


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    return path


def test_a_sweep_prints_the_best_row_all_rows_and_each_reason_once(run, study, tmp_path):
    output, chart = tmp_path / "table.csv", tmp_path / "chart.png"
    seen = run("sweep", study, "-o", output, "--chart", chart)
    assert seen.code == 0
    lines = [line.rstrip() for line in seen.out.splitlines()]
    assert lines[0].startswith(
        "mine: 4 of 4 scenarios, 2 without a plan; most tokens/s, 149,908, with links[0].bandwidth (Gbit/s) 5,"
    )
    rows = [line.split() for line in lines if line.startswith(" " * 8) and line.split()[0] in ("1", "5")]
    assert [row[:2] for row in rows] == [["1", "2"], ["1", "3"], ["5", "2"], ["5", "3"]]
    assert " ".join(rows[2]).endswith("tp 1, pp 2, dp 2, mb 1, 1f1b") and " ".join(rows[3]).endswith("infeasible, see below")
    assert lines[-1].startswith("2 x megatron: no layout with equal stages over all devices divides ")
    assert seen.err.splitlines()[1] == f"Written to {output}. Written to {chart}."
    assert chart.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    again = run("sweep", study, "-o", output)
    assert again.out == seen.out
    assert again.err.startswith("0 scenarios planned in ")


def test_a_sweep_as_one_document(run, study, tmp_path):
    seen = run("sweep", study, "--json")
    assert (seen.code, seen.err) == (0, "")
    document = json.loads(seen.out)
    assert list(document) == ["format", "name", "keys", "rows", "interrupted"]
    assert (document["name"], document["keys"]) == ("mine", ["links[0].bandwidth (Gbit/s)", "plan.pp"])
    row = document["rows"][0]
    assert (row["links[0].bandwidth (Gbit/s)"], row["plan.pp"], row["pp"], row["dp"], row["status"]) == (
        1.0,
        2,
        2,
        2,
        "planned",
    )
    assert document["rows"][1]["tokens_per_s"] is None and document["rows"][1]["status"] == "infeasible"
    assert [path.name for path in tmp_path.iterdir()] == ["study.yaml"], "without -o nothing is written"


def test_ctrl_c_keeps_finished_rows_and_ends_with_exit_code_130(run, study, tmp_path, monkeypatch):
    from holmes_sim.sweeping.engines import local

    def pressed(tasks, count, address):
        yield local.run_task(next(tasks))
        raise KeyboardInterrupt

    monkeypatch.setattr(local, "results", pressed)
    seen = run("sweep", study, "-o", tmp_path / "table.csv")
    assert seen.code == 130
    assert seen.out.startswith("mine: 1 of 4 scenarios")
    assert seen.err.splitlines()[-1] == "Interrupted: run the same command again to resume."
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-o", "table.txt"), "table.txt: a table ends in .csv or .parquet, not in .txt"),
        (("-o", "nosuch/table.csv"), "nosuch/table.csv: cannot be written: No such file or directory"),
        (("--chart", "chart.gif"), "chart.gif: a picture ends in one of .png, .svg, .pdf, not in .gif"),
        (("--engine", "ray"), "engine 'ray' is unknown; known: local, dask://HOST:PORT"),
    ],
)
def test_wrong_options_are_refused_before_the_work(run, study, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seen = run("sweep", study, *arguments)
    assert (seen.code, seen.out, seen.err) == (2, "", f"error: {message}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["study.yaml"]


def test_a_chart_of_three_keys_is_refused_before_the_work(run, tmp_path):
    seen = run("sweep", "lab-layouts", "--chart", tmp_path / "chart.png")
    assert seen.code == 2
    assert seen.err == (
        "error: a chart shows one or two varied keys; lab-layouts has 3: "
        "links[0].bandwidth (Mbit/s), plan.pp, plan.microbatch_size\n"
    )


def test_a_fault_of_the_study_names_its_line(run, study):
    study.write_text(STUDY.replace("[2, 3]", "[2, three]"))
    seen = run("sweep", study)
    assert (seen.code, seen.err) == (2, f"error: {study}:7: plan.pp: 'three' is not a whole number\n")


def test_studies_are_listed_with_what_they_vary(run):
    seen = run("list", "studies")
    rows = {line.split()[0]: line.split()[1:] for line in seen.out.splitlines()[2:]}
    assert rows["trunk-and-batch"] == ["two-sites-trunk", "24", "links[0].bandwidth,", "workload.global_batch_size"]
