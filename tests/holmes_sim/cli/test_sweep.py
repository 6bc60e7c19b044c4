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
def study(tmp_path, monkeypatch):
    """Four scenarios, planned in this process: tests of `holmes_sim.sweeping` start others."""
    monkeypatch.setattr("joblib.cpu_count", lambda: 1)
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


PINS = ("plan.tp=1", "plan.pp=1", "plan.microbatch_size=1", "plan.schedule=1f1b")
THIN = (
    "sweep",
    "lab/lab-slow-trunk",
    "links[0].bandwidth=10 Mbit/s, 1 Gbit/s",
    *PINS,
    "--set",
    "workload.global_batch_size=256",
)


def test_values_of_keys_of_a_topology(run):
    seen = run(
        "sweep", "lab/lab-hybrid-nics", "plan.pp=2,3", "plan.tp=1", "plan.strategy=megatron", "--set", "name=mine", "--json"
    )
    document = json.loads(seen.out)
    assert (document["name"], document["keys"]) == ("mine", ["plan.pp"])
    assert [(row["plan.pp"], row["tp"], row["status"]) for row in document["rows"]] == [
        (2, 1, "planned"),
        (3, None, "infeasible"),
    ]
    assert (document["rows"][0]["sync"], document["rows"][0]["token_worth"]) == ("exact", 1.0)


def test_plans_keep_to_a_file_of_requirements(run, study, tmp_path):
    need = tmp_path / "need.yaml"
    need.write_text("format: holmes-sim/require/1\ndp: {max: 1}\ndevices: {max: 2}\n")
    study.write_text(STUDY.replace("strategy: megatron", "strategy: certified"))
    rows = json.loads(run("sweep", study, "--require", need, "--json").out)["rows"]
    assert [(row["plan.pp"], row["dp"], row["status"]) for row in rows] == [
        (2, 1, "planned"), (3, None, "infeasible"), (2, 1, "planned"), (3, None, "infeasible"),
    ]  # fmt: skip
    varied = ("lab/lab-hybrid-nics", "require.dp.max=1,2", *PINS, "--require", need)
    rows = json.loads(run("sweep", *varied, "--json").out)["rows"]
    assert [(row["dp"], row["devices"]) for row in rows] == [(1, 1), (2, 2)]


def test_a_wrong_file_of_requirements_is_one_line(run, study, tmp_path):
    need = tmp_path / "need.yaml"
    need.write_text("format: holmes-sim/require/1\ntargets: [megatorn]\n")
    for words in ((study,), ("lab/lab-hybrid-nics", "plan.pp=2,3")):
        seen = run("sweep", *words, "--require", need)
        assert (seen.code, seen.out) == (2, "")
        assert seen.err.startswith(f"error: {need}:2: targets[0]: target 'megatorn' is unknown; did you mean 'megatron'?")


def test_islands_beside_exact_plans(run, tmp_path, monkeypatch):

    monkeypatch.setattr("joblib.cpu_count", lambda: 1)
    table = tmp_path / "table.csv"
    words = ('plan.sync=["exact", "streaming-diloco<=30,int8"]', "--chart", tmp_path / "chart.png", "-o", table)
    seen = run(*THIN, *words)
    assert seen.code == 0, seen.err
    lines = seen.out.splitlines()
    assert "; most effective tokens/s, " in lines[0]
    assert ", with sync streaming-diloco 2, int8" in " ".join(lines[:2])
    assert sum("streaming-diloco 30, islands differ" in " ".join(line.split()) for line in lines) == 1
    assert sum("exact nothing" in " ".join(line.split()) for line in lines) == 2
    assert any(line.startswith("islands differ: not the result of synchronous training") for line in lines)
    assert (tmp_path / "chart.png").stat().st_size > 10_000
    document = json.loads(run(*THIN, *words[:1], "-o", table, "--json").out)
    row = document["rows"][1]
    assert (row["sync"], row["inner_steps"], row["price"], row["clusters"]) == (
        "streaming-diloco 30, int8",
        30,
        "bounded",
        "east | west",
    )
    assert row["effective_tokens_per_s"] == row["tokens_per_s"] * row["token_worth"]
    assert (row["tp"], row["pp"], row["dp"], row["devices"], row["bubble_fraction"]) == (1, 1, 2, 4, None)
    assert row["mfu"] > 0 and 0 < row["gap"] < 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("lab/lab-slow-trunk", "links[0].bandwidth"), "'links[0].bandwidth' should be KEY=VALUES, such as "),
        (("lab/lab-slow-trunk", "plan.tp=1", "plan.tp=2"), "'plan.tp=2': plan.tp is given twice; give all its values at once"),
        (("lab/lab-slow-trunk", "plan.tp=1", "--sync", "dilco"), "--sync 'dilco': dilco is unknown; "),
        (("lab/lab-slow-trunk", "plan.sync=any,dilco"), "sweep of lab-slow-trunk:1: plan.sync: --sync 'dilco': dilco is "),
        (("lab/lab-slow-trunk", "plan.strategy=holmes", "--sync", "any"), "sweep of lab-slow-trunk:1: "),
        (("lab-layouts", "--sync", "any"), "study lab-layouts: sync any uses strategy certified and objective step-time; "),
        (("lab-layouts", "--set", "name=x"), "--set changes a topology, which lab-layouts is not without KEY=VALUES; "),
    ],
)  # fmt: skip
def test_wrong_values_and_strategies_are_one_line(run, arguments, message):
    seen = run("sweep", *arguments)
    assert (seen.code, seen.out) == (2, "")
    assert seen.err.startswith(f"error: {message}")
    assert seen.err.count("\n") == 1
