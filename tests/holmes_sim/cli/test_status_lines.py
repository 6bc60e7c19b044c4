"""Commands that take a second or two show what they do meanwhile."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from holmes_sim import charts, exporting, printing, unlike_pipelines
from holmes_sim.cli import output
from holmes_sim.cli.commands import export, report, show, simulate
from sim.errors import PlanError


@pytest.fixture
def shown(monkeypatch) -> list[str]:
    """The status lines that are on the screen now."""
    lines: list[str] = []

    @contextmanager
    def progress(what, seconds=None, first=""):
        lines.append(what)
        yield lambda text: None
        lines.remove(what)

    monkeypatch.setattr(output, "progress", progress)
    return lines


def test_export_says_to_what_it_exports(monkeypatch, shown):
    seen: list[list[str]] = []
    monkeypatch.setattr(unlike_pipelines, "read_every_kind", lambda path: None)
    monkeypatch.setattr(exporting, "export", lambda plan, to, folder: seen.append(list(shown)))
    monkeypatch.setattr(printing, "launched", lambda to, folder, launch: "")
    export.command("plan.json", "megatron", Path("launch"))
    assert seen == [["exporting to megatron"]]


def test_show_says_that_it_draws(monkeypatch, shown):
    seen: list[list[str]] = []
    monkeypatch.setattr(charts, "topology", lambda topology: None)
    monkeypatch.setattr(output, "save", lambda figure, path: seen.append(list(shown)))
    show.command("holmes-hybrid-4", Path("fleet.png"))
    assert seen == [["drawing"]]


@pytest.mark.parametrize(
    ("module", "function", "command"),
    [
        (unlike_pipelines, "read_anything", lambda: show.command("plan.json")),
        (unlike_pipelines, "read_every_kind", lambda: simulate.command(Path("plan.json"))),
        (unlike_pipelines, "read_every_kind", lambda: report.command(Path("plan.json"), Path("report.html"))),
    ],
)
def test_files_are_read_under_a_status_line(monkeypatch, shown, module, function, command):
    """Reading comes with the imports, which take longer."""

    def read(*given):
        raise PlanError(f"shown: {shown}")

    monkeypatch.setattr(module, function, read)
    with pytest.raises(PlanError, match=r"^shown: \['reading plan.json'\]$"):
        command()


def test_a_status_line_waits_for_no_simulator():
    """The imports of the simulator take a second, in which the line is to be seen."""
    script = (
        "import sys\nfrom holmes_sim.cli import output\nwith output.progress('reading'):\n"
        "    print([name for name in ('networkx', 'holmes_sim.printing', 'sim.plan') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"
