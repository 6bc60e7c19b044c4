"""Commands that take a second or two show what they do meanwhile."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

import pytest

from holmes_sim import charts, exporting, islands, printing
from holmes_sim.cli import output
from holmes_sim.cli.commands import export, show


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
    monkeypatch.setattr(islands, "read_either", lambda path: None)
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
