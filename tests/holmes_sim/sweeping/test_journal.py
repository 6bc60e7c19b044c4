"""The journal holds what was recorded, whatever a crash left at its end, and is no other file."""

from __future__ import annotations

import pytest

from holmes_sim.sweeping import journal
from sim.errors import HolmesError

PLANNED, FAILED = {"status": "planned", "step_s": 0.1}, {"status": "failed", "reason_if_none": "MemoryError: "}


def recorded(path, **rows):
    with journal.writer(path) as record:
        for digest, row in rows.items():
            record(digest, {"plan.pp": 1}, row)


def test_rows_come_back_by_their_digest(tmp_path):
    path = tmp_path / "table.csv.journal"
    assert journal.read(path) == {}
    recorded(path, a=PLANNED)
    recorded(path, b={"status": "infeasible", "reason_if_none": "too small"})
    assert journal.read(path) == {"a": PLANNED, "b": {"status": "infeasible", "reason_if_none": "too small"}}
    assert path.read_text().splitlines() == [
        '{"format": "holmes-sim/sweep-journal/1"}',
        '{"digest": "a", "scenario": {"plan.pp": 1}, "row": {"status": "planned", "step_s": 0.1}}',
        '{"digest": "b", "scenario": {"plan.pp": 1}, "row": {"status": "infeasible", "reason_if_none": "too small"}}',
    ]


def test_what_failed_is_planned_again(tmp_path):
    path = tmp_path / "journal"
    recorded(path, a=FAILED, b=FAILED)
    assert journal.read(path) == {}
    recorded(path, a=PLANNED)
    assert journal.read(path) == {"a": PLANNED}


def test_a_journal_that_was_cut_anywhere_loses_its_last_row_only(tmp_path):
    path = tmp_path / "journal"
    recorded(path, a=PLANNED, b=PLANNED)
    whole = path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    for cut in sorted(
        {*range(0, len(whole), 13), *(end + near for end in ends for near in (-2, -1, 0, 1))} - {ends[2], ends[2] + 1}
    ):
        path.write_bytes(whole[:cut])
        left = {"a": PLANNED} if cut >= ends[1] else {}
        assert journal.read(path) == left, cut
        recorded(path, b=PLANNED)
        assert journal.read(path) == left | {"b": PLANNED}, cut
        recorded(path, a=PLANNED)
        assert len(path.read_text().splitlines()) == 3 + len(left), cut


def test_nothing_is_begun_before_the_first_row(tmp_path):
    with journal.writer(tmp_path / "journal"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_another_file_is_refused_and_stays(tmp_path):
    path = tmp_path / "journal"
    path.write_text("my notes\n")
    with pytest.raises(HolmesError) as wrong:
        journal.read(path)
    assert str(wrong.value) == f"{path}: is not the journal of a sweep; move it away, or choose another table"
    assert path.read_text() == "my notes\n"


def test_lines_that_are_no_rows_are_passed_over(tmp_path):
    path = tmp_path / "journal"
    recorded(path, a=PLANNED)
    path.write_bytes(path.read_bytes() + b'[1]\n{"digest": "b", "row": 3}\n\xff\n{"digest"\n')
    assert journal.read(path) == {"a": PLANNED}
