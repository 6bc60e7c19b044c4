"""Completion by the shell: what a Tab offers is what the commands take, and nothing heavy is imported to say so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holmes_sim import commands as face
from holmes_sim import exporters
from holmes_sim.cli import commands, completion
from holmes_sim.cli.commands import list as listing
from holmes_sim.sweeping import study
from planner import strategies
from sim.formats import catalog
from sim.plan import schedules

HOME = Path(completion.__file__).resolve().parents[2]


@pytest.fixture
def tab(run, monkeypatch, tmp_path):
    """What bash is offered for the last word of a line, in a folder with a plan, a topology and a note."""
    for name in ("plan.json", "mine.yaml", "notes.txt"):
        (tmp_path / name).write_text("")
    monkeypatch.chdir(tmp_path)

    def pressed(line: str) -> list[str]:
        monkeypatch.setenv("_HOLMES_SIM_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        seen = run()
        assert (seen.code, seen.err) == (0, "")
        return seen.out.split()

    return pressed


def test_commands_and_options_are_completed(tab):
    assert tab("holmes-sim ") == [command.NAME for command in commands.in_order()]
    assert tab("holmes-sim re") == ["report", "replan"]
    assert tab("holmes-sim goodput plan.json --che") == ["--checkpoint"]
    assert tab("holmes-sim plan x --microbatch") == ["--microbatch-size"]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("plan x --strategy ", strategies.names()),
        ("plan x --schedule ", tuple(filter(schedules.can_be_pinned, schedules.names()))),
        ("plan x --recompute ", ("none", "selective", "full", "block")),
        ("plan x --model ", catalog.names("models")),
        ("simulate plan.json --profile ", catalog.names("profiles")),
        ("export plan.json --to ", sorted(exporters.every())),
        ("list ", listing.KINDS),
        ("plan ", (*face.shipped_topologies(), "mine.yaml")),
        ("show ", (*face.shipped_topologies(), "mine.yaml", "plan.json")),
        ("sweep ", (*study.shipped(), "mine.yaml")),
        ("compare x --strategies ", ("all", *strategies.names())),
    ],
)
def test_all_known_values_are_offered(tab, line, offered):
    assert tab(f"holmes-sim {line}") == list(offered)


def test_the_beginning_of_a_word_is_kept(tab):
    assert tab("holmes-sim plan holmes-hybrid-") == ["holmes-hybrid-4", "holmes-hybrid-6", "holmes-hybrid-8"]
    assert tab("holmes-sim compare x --strategies holmes,me") == ["holmes,megatron", "holmes,metis"]
    assert tab("holmes-sim report plan.json --strategies no") == ["none"]


def test_files_are_completed_by_the_shell(tab):
    for line in ("simulate pl", "plan ../to", "import nodes", "plan x -o pl"):
        assert tab(f"holmes-sim {line}") == []


@pytest.mark.parametrize("line", ["holmes-sim plan ", "holmes-sim plan x --strategy ", "holmes-sim export x --to "])
def test_completion_imports_no_heavy_module(line):
    script = (
        "import sys\nfrom holmes_sim import cli\nsys.argv = ['holmes-sim']\n"
        "try:\n    cli.main()\nexcept SystemExit:\n    pass\n"
        "heavy = ['pandas', 'matplotlib', 'pulp', 'networkx', 'simpy', 'numpy', 'pydantic', 'yaml']\n"
        "print(sorted(name for name in heavy if name in sys.modules))"
    )
    variables = {"_HOLMES_SIM_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | variables, capture_output=True, text=True, check=True, cwd=HOME
    )
    assert len(done.stdout.splitlines()) > 5
    pydantic = ["pydantic"] if "pydantic" in done.stdout.splitlines()[-1] else []  # newer versions of typer stand on it
    assert done.stdout.splitlines()[-1] == str(pydantic)


@pytest.mark.skipif(shutil.which("bash") is None, reason="NO BASH: its completion was not tried")
def test_bash_completes_by_the_script_that_is_installed(tmp_path):
    """The function that the script registers is called as a Tab calls it."""
    (tmp_path / "holmes-sim").write_text(f'#!/bin/sh\nPYTHONPATH={HOME} exec "{sys.executable}" "$0.py" "$@"\n')
    (tmp_path / "holmes-sim.py").write_text("import sys\nfrom holmes_sim import cli\nsys.argv[0] = 'holmes-sim'\ncli.main()\n")
    (tmp_path / "holmes-sim").chmod(0o755)
    script = (
        'eval "$(_HOLMES_SIM_COMPLETE=source_bash holmes-sim)"; complete -p holmes-sim; '
        "COMP_WORDS=(holmes-sim export plan.json --to meg); COMP_CWORD=4; "
        '_holmes_sim_completion holmes-sim; echo "${COMPREPLY[@]}"'
    )
    environment = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "--norc", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["complete -o default -F _holmes_sim_completion holmes-sim", "megatron"]
