"""`export` of a plan of islands: a complete folder, or one line for each reason against it and nothing written."""

from __future__ import annotations

import json

import pytest

from sim.formats import islandsfile
from tests.island_plans import islands


@pytest.fixture
def islands_file(tmp_path):
    path = tmp_path / "islands.json"
    path.write_text(islandsfile.to_json(islands()), encoding="utf-8")
    return path


def test_a_plan_of_islands_is_exported(run, islands_file, tmp_path):
    seen = run("export", islands_file, "--to", "torchtitan", "-o", tmp_path / "launch", "--json")
    assert (seen.code, seen.err) == (0, "")
    document = json.loads(seen.out)
    assert document["format"] == "holmes-sim/export/1"
    assert {"README.md", "islands.json", "lighthouse.sh", "island1/holmes_island.py"} <= set(document["files"])
    assert (tmp_path / "launch" / "islands.json").read_text(encoding="utf-8") == islands_file.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("target", "line"),
    [
        ("megatron", "error: megatron cannot keep islands together by diloco; targets that can: torchrun, torchtitan, prime\n"),
        ("prime", "error: prime cannot express islands[0].model llama-3-8b: it has models by name, with their tokenizer's "),
    ],
)
def test_a_refused_plan_of_islands_writes_nothing(run, islands_file, tmp_path, target, line):
    seen = run("export", islands_file, "--to", target, "-o", tmp_path / "launch")
    assert (seen.code, seen.out) == (2, "")
    assert seen.err.startswith(line)
    assert not (tmp_path / "launch").exists()
