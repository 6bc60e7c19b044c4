"""Plans that software refuses, by the rules of nanotron."""

from __future__ import annotations

import pytest

from sim.hardware.refusals import REFUSED, refused

ALL = tuple(REFUSED)


@pytest.mark.parametrize(("behind", "found"), [(0, False), (2, False), (3, True), (9, True)])
def test_cast_and_loss_fill_two_stages_behind_the_head(behind: int, found: bool) -> None:
    assert refused(ALL, behind, "1f1b", 64, 16) is found
    assert not refused((), behind, "1f1b", 64, 16)


@pytest.mark.parametrize(("schedule", "microbatches", "found"), [("1f1b", 6, True), ("1f1b", 7, False), ("gpipe", 6, False)])
def test_1f1b_of_8_stages_needs_7_microbatches(schedule: str, microbatches: int, found: bool) -> None:
    assert refused(ALL, 0, schedule, microbatches, 8) is found
    assert not refused(("distant_head",), 0, schedule, microbatches, 8)
