"""The examples run, print what they promise, and stay short."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from tests.more import after

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
PRINTS = {
    "plan_a_topology": ("Lower bound:", "from the best", "microbatch_size: "),
    "expert_counts": ("holmes-sim/expert-counts/1", "by_cluster", "roce"),
    "widen_a_trunk": ("1 Gbit/s: ", "5 Gbit/s: ", "tokens/s (+"),
    "simulate_stragglers": ("predicted: ", "slowest: seed "),
    "unlike_pipelines": ("Fastest: 26 and 38 microbatches, 39.92 s",),
}


def test_every_example_is_expected_to_print_something() -> None:
    assert {path.stem for path in EXAMPLES} == set(PRINTS)


@pytest.mark.parametrize("path", after(2, EXAMPLES), ids=lambda path: path.stem)
def test_an_example_runs_and_prints(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", [str(path)])
    runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out
    assert [words for words in PRINTS[path.stem] if words not in printed] == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_under_forty_lines(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 40
