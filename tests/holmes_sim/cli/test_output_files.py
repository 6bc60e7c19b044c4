"""Files that commands write are complete or absent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.holmes_sim.cli.arguments import HYBRID


def test_nothing_is_written_if_planning_fails(run, tmp_path):
    assert run("plan", "holmes-hybrid-4", "--dp", "5", "--zero-stage", "3", "-o", tmp_path / "plan.json").code == 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["-o", "--trace", "--chart"])
def test_a_path_that_cannot_be_written_is_one_line(run, plan_file, tmp_path, option):
    target = tmp_path / "absent" / "file.png"
    seen = run(*(HYBRID if option == "-o" else ("simulate", plan_file)), option, target)
    assert (seen.code, seen.out) == (2, "")
    assert seen.err == f"error: {target}: cannot be written: No such file or directory\n"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_place_of_the_output_file_is_refused(run, tmp_path):
    """The temporary file beside it is written, cannot replace the folder, and is removed."""
    (tmp_path / "plan.json").mkdir()
    seen = run(*HYBRID, "-o", tmp_path / "plan.json")
    assert (seen.code, seen.out) == (2, "")
    assert seen.err == f"error: {tmp_path / 'plan.json'}: cannot be written: Is a directory\n"
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_an_interrupted_write_keeps_the_old_file(monkeypatch, tmp_path):
    from holmes_sim import files

    target = tmp_path / "plan.json"
    files.write(target, "old\n")

    def no(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", no)
    with pytest.raises(KeyboardInterrupt):
        files.write(target, "new\n")
    assert target.read_text() == "old\n"
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_an_unknown_picture_format_is_refused(run, plan_file, tmp_path):
    seen = run("simulate", plan_file, "--chart", tmp_path / "step.txt")
    assert (seen.code, seen.out) == (2, "")
    assert seen.err == f"error: {tmp_path / 'step.txt'}: a picture ends in one of .png, .svg, .pdf, not in .txt\n"
