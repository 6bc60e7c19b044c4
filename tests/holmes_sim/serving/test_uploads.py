"""Uploaded files: topologies and plans are read as usual, and open no other file."""

from __future__ import annotations

import pytest

from holmes_sim import commands
from holmes_sim.serving import uploads
from sim.errors import HolmesError
from sim.formats import planfile

FILE = (commands.topologies_folder() / "holmes-hybrid-4.yaml").read_text(encoding="utf-8")


def refused(text: str | bytes) -> str:
    with pytest.raises(HolmesError) as caught:
        uploads.read("mine.yaml", text.encode() if isinstance(text, str) else text)
    return str(caught.value)


def test_a_topology_is_that_of_its_file():
    assert uploads.read("mine.yaml", FILE.encode()) == commands.load("holmes-hybrid-4")


def test_a_plan_is_that_of_its_file(two_plans):
    assert uploads.read("plan.json", planfile.to_json(two_plans[0]).encode()) == two_plans[0]


def test_a_fault_has_file_line_and_key():
    said = refused(FILE.replace("200 Gbit/s, count: 4", "200, count: 4"))
    assert said.startswith("mine.yaml:13: clusters.ib.node.nics[0].bandwidth: 200 is not a rate: the unit is missing")


def test_bytes_that_are_no_text_are_refused():
    assert refused(b"\xff\xfe\x00") == "mine.yaml: not a UTF-8 text file (invalid start byte at byte 0)"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("stack: PATH", "mine.yaml:26: stack: stack 'PATH' is not in the catalogue; known: "),
        ("profile: PATH", "mine.yaml:26: profile: profile 'PATH' is not in the catalogue; known: sailor"),
    ],
)
def test_a_path_in_a_topology_is_not_opened(tmp_path, line, said):
    """The file exists: only a page that opened it would have another message."""
    path = tmp_path / "there.yaml"
    path.write_text("name: secret\n")
    text = f"{FILE}{line.replace('PATH', str(path))}\n"
    found = refused(text)
    assert found.startswith(said.replace("PATH", str(path))) and found.endswith("; this page opens no other file")


def test_a_path_of_a_model_is_not_opened(tmp_path, two_plans):
    path = tmp_path / "config.json"
    path.write_text("{}")
    said = f"workload.model: model '{path}' is not in the catalogue; known: "
    assert refused(FILE.replace("model: gpt-3.6b", f"model: {path}")).startswith(f"mine.yaml:25: {said}")
    text = planfile.to_json(two_plans[0])
    inside = text[text.index('"model": {') : text.index("},", text.index('"model": {')) + 1]
    assert said in refused(text.replace(inside, f'"model": "{path}"'))


def test_nodes_that_do_not_exist_are_refused():
    assert "require" in refused(f"{FILE}require: {{nodes: {{exclude: [ib/node7]}}}}\n")
