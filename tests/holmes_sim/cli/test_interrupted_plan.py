"""plan --json-lines, Ctrl-C, and the status line."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys

import pytest
from rich.console import Console

from holmes_sim.cli import output
from planner.strategies import certified
from tests.holmes_sim.cli.arguments import HYBRID

KEYS = ["format", "seconds", "activity", "step_s", "lower_bound_s", "gap"]


def test_the_last_json_line_is_the_document_and_the_others_are_improvements(run):
    seen = run(*HYBRID, "--json-lines")
    assert (seen.code, seen.err) == (0, "")
    *improvements, document = map(json.loads, seen.out.splitlines())
    assert document == json.loads(run(*HYBRID, "--json").out)
    assert improvements and all(list(line) == KEYS for line in improvements)
    assert improvements[-1]["step_s"] == document["prediction"]["step_s"]
    assert improvements[-1]["lower_bound_s"] <= document["prediction"]["step_s"]
    assert all(line["gap"] == pytest.approx(1 - line["lower_bound_s"] / line["step_s"]) for line in improvements)
    seconds = [line["seconds"] for line in improvements]
    assert seconds == sorted(seconds)


@pytest.mark.parametrize("other", [("--json",), ("--explain",), ("--pareto",), ("--shortlist", "2", "-o", "folder")])
def test_json_lines_are_for_one_plan(run, other):
    seen = run(*HYBRID, "--json-lines", *other)
    assert (seen.code, seen.out) == (2, "")
    assert seen.err == (
        "error: --json-lines prints the search for one plan; leave out --json, --explain, --pareto and --shortlist\n"
    )


def test_an_interrupt_in_the_middle_writes_the_best_plan_so_far(tmp_path):
    """holmes-hybrid-4 is searched for tens of seconds; the first line comes long before."""
    path = tmp_path / "plan.json"
    command = [sys.executable, "-m", "holmes_sim.cli", "plan", "holmes-hybrid-4", "--json-lines", "-o", str(path)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job has it ignored
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate()
    assert (process.returncode, errors) == (0, "Interrupted: this is the best plan found so far.\n")
    *improvements, document = map(json.loads, [first, *rest.splitlines()])
    assert document["prediction"]["step_s"] == improvements[-1]["step_s"]
    assert improvements[-1]["lower_bound_s"] <= document["certificate"]["lower_bound_s"] <= document["prediction"]["step_s"]
    assert document["certificate"]["gap"] == pytest.approx(
        1 - document["certificate"]["lower_bound_s"] / document["prediction"]["step_s"]
    )
    assert json.loads(path.read_text()) == document


@pytest.mark.parametrize("options", [(), ("--json",), ("--json-lines",)])
def test_an_interrupt_before_the_first_plan_is_one_line(run, monkeypatch, tmp_path, options):
    monkeypatch.setattr(certified, "find_first_plan", lambda *_, **further: os.kill(os.getpid(), signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        seen = run(*HYBRID, *options, "-o", tmp_path / "plan.json")
    finally:
        signal.signal(signal.SIGINT, before)
    assert (seen.code, seen.out, seen.err) == (130, "", "interrupted before a plan was found\n")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_while_the_result_is_written_changes_nothing(run, monkeypatch, tmp_path):
    write, before = output.write, signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupted(path, text):
        os.kill(os.getpid(), signal.SIGINT)
        write(path, text)

    monkeypatch.setattr(output, "write", interrupted)
    try:
        seen = run(*HYBRID, "--json", "-o", tmp_path / "plan.json")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert (seen.code, seen.err, (tmp_path / "plan.json").read_text()) == (0, "", seen.out)


def test_the_status_line_says_how_much_time_is_left(monkeypatch):
    screen = Console(file=io.StringIO(), force_terminal=True, width=120)
    monkeypatch.setattr(output, "console", lambda stderr=False: screen)
    now = [100.0]
    monkeypatch.setattr("holmes_sim.cli.output.time.monotonic", lambda: now[0])
    line = output._Line("planning ...", 130.0)
    texts = [line.__rich__()]
    line.show("planning", "7 layouts [settled], gap 1.0%")
    for now[0] in (110.2, 129.9, 131.0):
        texts.append(line.__rich__())
    assert texts == [
        "planning ..., 30 s left",
        "planning: 7 layouts \\[settled], gap 1.0%, 20 s left",
        "planning: 7 layouts \\[settled], gap 1.0%, 0 s left",
        "planning: 7 layouts \\[settled], gap 1.0%, time is up",
    ]
    with output.progress("planning", 30.0) as progress:
        progress("12 layouts settled")
    assert "30 s left" in screen.file.getvalue()
