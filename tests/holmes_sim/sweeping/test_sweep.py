"""A sweep's rows are the planner's own answers; a crash costs what was at work, and nothing is planned twice."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest

import holmes_sim as hs
from holmes_sim.sweeping import journal, study, table, worker
from holmes_sim.sweeping.engines import local
from planner import api
from planner.request import Request
from sim.errors import HolmesError
from tests.holmes_sim.sweeping.reading import without_seconds
from tests.more import after, more

HOME = Path(hs.__file__).resolve().parent.parent
GRID = "vary:\n  links[0].bandwidth: [1 Gbit/s, 5 Gbit/s]\n  plan.pp: [1, 2, 3]\n"
PATIENCE = 120.0
"""Seconds after which something that was waited for will not come."""


def journaled(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()[1:]]


def test_a_row_is_what_plan_answers(quick):
    found = hs.sweep(quick(GRID))
    assert list(found.frame["links[0].bandwidth (Gbit/s)"]) == [1.0, 1.0, 1.0, 5.0, 5.0, 5.0]
    assert list(found.frame["plan.pp"]) == [1, 2, 3, 1, 2, 3]
    topology = hs.edited(hs.load("lab/lab-hybrid-nics"), {"links[0].bandwidth": "1 Gbit/s"})
    wishes = hs.Wishes(tp=1, pp=2, microbatch_size=1, recompute="none", schedule="1f1b")
    plan = api.plan(Request(topology, topology.workload, wishes), "megatron")
    row, prediction = found.rows[1], plan.prediction
    assert {name: row[name] for name in worker.PREDICTED} == {name: getattr(prediction, name) for name in worker.PREDICTED}
    assert {name: row[name] for name in worker.CHOSEN} == {name: getattr(plan.config, name) for name in worker.CHOSEN}
    assert (row["status"], row["reason_if_none"], row["devices"], row["clusters"]) == ("planned", None, 4, "ib + roce")
    assert row["gap"] is None and 0 < row["planning_s"] < found.seconds


def test_a_scenario_without_a_plan_is_a_row_with_its_reason(quick):
    path = quick("vary:\n  plan.pp: [1, 3]\n  clusters.ib.nodes: [2, 3]\n  clusters.ib.hosts: [[a, b], [a, b, c]]\n")
    rows = hs.sweep(path).rows
    assert [row["status"] for row in rows] == [
        "planned",
        "wrong",
        "wrong",
        "infeasible",
        "infeasible",
        "wrong",
        "wrong",
        "infeasible",
    ]
    assert "hosts" in rows[1]["reason_if_none"]
    assert rows[4]["reason_if_none"].startswith("megatron: no layout with equal stages over all devices")
    assert rows[4]["step_s"] is rows[4]["tp"] is None
    assert rows[0]["clusters.ib.hosts"] == '["a", "b"]'


def test_scenarios_may_plan_for_targets(quick):
    with pytest.raises(HolmesError, match="'megatrn' is unknown; did you mean 'megatron'"):
        hs.sweep(quick("vary: {plan.target: [megatrn]}\n"))
    path = quick("vary: {plan.schedule: [null], plan.target: [null, megatron, deepspeed]}\n")
    rows = hs.sweep(path).rows
    assert [row["schedule"] for row in rows] == ["1f1b", "1f1b", "1f1b-deepspeed"], "strategy megatron has one schedule"


def test_an_unexpected_error_is_a_row_too_and_is_planned_again(quick, tmp_path, monkeypatch):
    def broken(*_: object) -> None:
        raise ZeroDivisionError("division by zero")

    path = quick("vary: {plan.pp: [2]}\n")
    with monkeypatch.context() as patched:
        patched.setattr(api, "plan_for", broken)
        (row,) = hs.sweep(path, output=tmp_path / "table.csv").rows
    assert (row["status"], row["reason_if_none"]) == ("failed", "ZeroDivisionError: division by zero")
    (row,) = hs.sweep(path, output=tmp_path / "table.csv").rows
    assert (row["status"], row["reason_if_none"]) == ("planned", None)


def test_what_the_journal_has_is_not_planned_again(quick, tmp_path, monkeypatch):
    output = tmp_path / "table.csv"
    first = hs.sweep(quick(GRID), output=output)
    monkeypatch.setattr(local, "results", None)
    again = hs.sweep(quick(GRID), output=output)
    assert (first.planned, again.planned) == (6, 0)
    assert again.rows == first.rows
    fewer = hs.sweep(quick("vary:\n  plan.pp: [3, 2]\n  links[0].bandwidth: [5 Gbit/s]\n"), output=output)
    assert fewer.planned == 0, "a changed study keeps what is still asked, whatever the order of its keys"
    assert [row["step_s"] for row in fewer.rows] == [None, first.rows[4]["step_s"]]
    assert len(pd.read_csv(output)) == 2
    assert len(journaled(journal.path_of(output))) == 6


def test_a_changed_study_plans_what_is_new(quick, tmp_path):
    output, seen = tmp_path / "table.csv", []
    hs.sweep(quick(GRID), output=output)
    more = hs.sweep(
        quick(GRID.replace("5 Gbit/s", "5 Gbit/s, 9 Gbit/s")), output=output, progress=lambda *args: seen.append(args)
    )
    assert more.planned == 3
    assert seen == [(6, 9), (7, 9), (8, 9), (9, 9)]
    assert hs.sweep(quick(GRID.replace("plan.pp", "plan.dp")), output=output).planned == 6


def test_a_scenario_that_occurs_twice_is_planned_once(quick):
    found = hs.sweep(quick("scenarios: [{plan.pp: 2}, {plan.pp: 2, plan.dp: null}, {plan.pp: 2, workload.seq_len: 1024}]\n"))
    assert found.planned == 1
    assert len({row["step_s"] for row in found.rows}) == 1


def test_another_version_asks_again(quick, monkeypatch):
    (scenario,) = study.load(quick("vary: {plan.pp: [2]}\n")).scenarios
    task = worker.task_of(scenario)
    monkeypatch.setattr(worker, "__version__", "0.0.0")
    assert worker.task_of(scenario).digest != task.digest
    with pytest.raises(HolmesError, match=r"^a worker has holmes-sim 0\.0\.0, the sweep has "):
        worker.run_task(task)


@more
def test_a_process_that_is_killed_half_way_goes_on_as_if_it_had_not_been(tmp_path, monkeypatch):
    """kill -9 of a real process: its own processes end, what it had reported stays, and nothing of that is planned again."""
    output = tmp_path / "table.csv"
    process = subprocess.Popen(
        [sys.executable, "-m", "holmes_sim.cli", "sweep", "lab-layouts", "-o", str(output)],
        cwd=HOME, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wait_until(lambda: journal.path_of(output).exists() and len(journal.path_of(output).read_text().splitlines()) > 10)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    wait_until(lambda: not alive_in_session(process.pid))
    done = journal.read(journal.path_of(output))
    assert 10 <= len(done) < 60, "it was killed half-way"
    assert set(pd.read_csv(output)["status"]) <= {"planned", "infeasible"}, "the table is whole at any time"
    with journal.path_of(output).open("ab") as file:
        file.write(b'{"digest": "00')  # and a line that it had half written
    monkeypatch.setattr("joblib.cpu_count", lambda: 1)  # what is left takes a second: no more workers are started
    went_on = hs.sweep("lab-layouts", output=output)
    assert went_on.planned == 60 - len(done)
    digests = [line["digest"] for line in journaled(journal.path_of(output))]
    assert len(digests) == len(set(digests)) == 60 and set(done) <= set(digests)
    undisturbed = hs.sweep("lab-layouts", output=tmp_path / "undisturbed.csv")
    assert undisturbed.planned == 60
    assert without_seconds(went_on) == without_seconds(undisturbed)
    tables = [pd.read_csv(path).drop(columns="planning_s") for path in (output, tmp_path / "undisturbed.csv")]
    pd.testing.assert_frame_equal(*tables, check_exact=True)


def wait_until(true) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def alive_in_session(session: int) -> list[str]:
    """Processes of a session that still run (Linux; elsewhere none is seen)."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, of = stat.read_text().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue
        if int(of) == session and state != "Z":
            found.append(stat.parent.name)
    return found


def test_ctrl_c_leaves_what_is_done_and_says_that_it_is_not_all(tmp_path):
    output = tmp_path / "table.csv"

    def pressed(done: int, of: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    found = hs.sweep("lab-layouts", output=output, progress=pressed)
    assert (found.interrupted, found.planned, len(found.rows), len(found.frame)) == (True, 5, 5, 5)
    assert str(found).startswith("lab-layouts: 5 of 60 scenarios")
    assert len(pd.read_csv(output)) == len(journaled(journal.path_of(output))) == 5


def test_a_search_that_ctrl_c_ended_is_no_answer(quick, tmp_path, monkeypatch):
    path, output = quick("vary: {plan.pp: [2]}\n"), tmp_path / "table.csv"
    plan_for = api.plan_for

    def pressed(objective, question, strategy, context):
        context.interrupted = True
        return plan_for(objective, question, strategy, context)

    monkeypatch.setattr(api, "plan_for", pressed)
    found = hs.sweep(path, output=output)
    assert (found.interrupted, found.rows) == (True, [])
    assert not output.exists() and not journal.path_of(output).exists()


@more
def test_a_worker_that_is_killed_is_one_line_and_what_was_reported_stays(tmp_path):
    """A worker is killed behind the second of many scenarios, as the kernel does for want of memory."""
    output = tmp_path / "table.csv"
    script = (
        "import multiprocessing, os\nfrom holmes_sim.sweeping import sweep\n"
        "def report(done, of):\n"
        "    if done == 2: os.kill(multiprocessing.active_children()[0].pid, 9)\n"
        f"sweep.sweep('lab-layouts', output={str(output)!r}, progress=report)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], cwd=HOME, capture_output=True, text=True, check=False)
    message = "a worker process was killed; it may have run out of memory. Run the sweep again to continue"
    assert f"sim.errors.HolmesError: {message}" in ended.stderr.splitlines()  # joblib's resource tracker may warn after it
    assert len(pd.read_csv(output)) == len(journaled(journal.path_of(output))) >= 2


def test_a_table_is_the_same_as_csv_and_as_parquet(quick, tmp_path):
    pytest.importorskip("pyarrow")
    found = hs.sweep(quick(GRID), output=tmp_path / "table.parquet")
    frame = pd.read_parquet(tmp_path / "table.parquet")
    pd.testing.assert_frame_equal(frame, found.frame, check_dtype=False)
    assert list(frame.columns) == ["links[0].bandwidth (Gbit/s)", "plan.pp", *table.RESULT_COLUMNS]
    table.write(tmp_path / "table.csv", found.frame)
    text = pd.read_csv(tmp_path / "table.csv")
    assert list(text["step_s"]) == pytest.approx(list(frame["step_s"]), rel=0, abs=0, nan_ok=True)
    assert (tmp_path / "table.csv").read_text().splitlines()[2].split(",")[:2] == ["1.0", "2"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("table.xlsx", "a table ends in .csv or .parquet, not in .xlsx"),
        ("table", "a table ends in .csv or .parquet, not in nothing"),
    ],
)
def test_a_table_of_another_kind_is_refused_before_the_work(quick, tmp_path, name, message):
    with pytest.raises(HolmesError) as wrong:
        hs.sweep(quick(GRID), output=tmp_path / name)
    assert str(wrong.value) == f"{tmp_path / name}: {message}"


def test_parquet_without_pyarrow_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "find_spec", lambda name: None if name == "pyarrow" else find_spec(name))
    with pytest.raises(HolmesError) as wrong:
        table.ending(tmp_path / "t.parquet")
    assert str(wrong.value).endswith("t.parquet: Parquet needs pyarrow; pip install 'holmes-sim[parquet]', or write a .csv")


def test_an_unknown_engine_is_refused_before_the_work(quick, tmp_path):
    for engine, message in {
        "spark": "engine 'spark' is unknown; known: local, dask://HOST:PORT",
        "local://here": "engine local takes no address, not 'here'",
        "dask": "engine dask needs the address of a scheduler, dask://HOST:PORT, not dask://",
    }.items():
        with pytest.raises(HolmesError) as wrong:
            hs.sweep(quick(GRID), engine=engine, output=tmp_path / "table.csv")
        assert str(wrong.value) == message
    assert [path.name for path in tmp_path.iterdir()] == ["study.yaml"]


def test_a_sweep_reads_well_in_a_notebook(quick):
    topology = hs.load("lab/lab-hybrid-nics")
    plan = {"tp": 1, "microbatch_size": 1, "recompute": "none", "schedule": "1f1b", "strategy": "megatron"}
    found = hs.sweep(topology, {"plan.pp": [2, 3]}, plan=plan)
    assert repr(found) == (
        "lab-hybrid-nics: 2 of 2 scenarios, 1 without a plan; "
        f"most tokens/s, {found.rows[0]['tokens_per_s']:,.0f}, with plan.pp 2"
    )
    html = found._repr_html_()
    assert html.startswith(f"<p>{found}</p>") and "<th>plan.pp</th>" in html and "usd_per_token" not in html
    with pytest.raises(HolmesError, match=r"^vary, scenarios and plan go with a topology; a study contains its own$"):
        hs.sweep("lab-layouts", {"plan.pp": [2]})


@pytest.mark.parametrize("name", after(2, study.shipped()))
def test_a_shipped_study_in_short_has_plans(name):
    """Its last scenario, with a second of search; tests/holmes_sim/sweeping/test_study.py reads all of them."""
    whole = study.load(name)
    last = whole.scenarios[-1]
    last = replace(last, options=last.options.model_copy(update={"time_limit": 1.0}))
    found = hs.sweep(replace(whole, scenarios=(last,)))
    assert [row["reason_if_none"] for row in found.rows if row["status"] not in ("planned", "infeasible")] == []
    assert found.best is not None and found.best["tokens_per_s"] > 0
