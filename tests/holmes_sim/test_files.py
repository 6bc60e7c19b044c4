"""Files appear complete or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holmes_sim import files
from sim.errors import HolmesError


def test_a_file_is_written_whole_and_nothing_beside_it(tmp_path: Path) -> None:
    files.write(tmp_path / "plan.json", "one")
    files.write(tmp_path / "plan.json", b"two")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("plan.json", "two")]


def test_a_link_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to("real.json")
    files.write(tmp_path / "link.json", "new")
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real.json").read_text() == "new"


def test_what_is_not_a_regular_file_is_never_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for place, kind in ((pipe, "not a regular file"), (tmp_path, "Is a directory")):
        with pytest.raises(HolmesError) as caught:
            files.write(place, "text")
        assert str(caught.value) == f"{place}: cannot be written: {kind}"
    assert pipe.is_fifo()


def test_a_missing_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(HolmesError) as caught:
        files.write(tmp_path / "none" / "plan.json", "text")
    assert str(caught.value) == f"{tmp_path}/none/plan.json: cannot be written: No such file or directory"
