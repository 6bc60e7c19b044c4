"""Help, version, and the command line as a process."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.holmes_sim.cli.arguments import COMMANDS
from tests.more import more


def test_without_arguments_the_help_is_printed(run):
    seen = run()
    assert seen.code in (0, 2), "versions of typer differ"
    assert "holmes-sim" in seen.out and "simulate" in seen.out and seen.err == ""


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(run, command):
    for flag in ("--help", "-h"):
        seen = run(command, flag)
        assert seen.code == 0
        assert f"Example: holmes-sim {command} " in " ".join(seen.out.split())


def test_help_names_every_command(run):
    seen = run("--help")
    assert seen.code == 0
    assert all(command in seen.out for command in COMMANDS)


def test_version(run):
    from sim import __version__

    seen = run("--version")
    assert (seen.code, seen.out, seen.err) == (0, f"holmes-sim {__version__}\n", "")


@more
def test_a_process_writes_its_document_to_stdout_only(plan_file):
    done = subprocess.run(
        [sys.executable, "-m", "holmes_sim.cli", "show", str(plan_file), "--json"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == json.loads(plan_file.read_text())


def test_a_process_fails_with_one_line_and_its_exit_code():
    done = subprocess.run(
        [sys.executable, "-m", "holmes_sim.cli", "plan", "nope.yaml"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "error: nope.yaml: no such file\n")
