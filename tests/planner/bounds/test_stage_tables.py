"""Tables of all stages, and groups of numbers of microbatches."""

from __future__ import annotations

import numpy as np
import pytest

from planner.bounds.stage_options import DeviceKind, StageOption
from planner.bounds.stage_tables import APART, StageTables, grouped

NARROW = StageOption(0, 1, 1.0, 1.0, 3.0, 1.5, (0.0, 0.0, 1.0, 2.0))
WIDE = StageOption(1, 2, 0.5, 0.75, 2.0, 1.0, (0.0, 0.0, 0.0))


@pytest.fixture
def tables() -> StageTables:
    """Stages of up to three layers for one sample, and of the wide slot for two samples, too."""
    return StageTables([DeviceKind(4, {1: (NARROW,)}), DeviceKind(2, {1: (WIDE,), 2: (WIDE,)})], 3)


def test_groups_have_all_numbers():
    assert grouped(3) == [(1, 1), (2, 2), (3, 3)]
    groups = grouped(300)
    assert [number for first, last in groups for number in range(first, last + 1)] == list(range(1, 301))
    assert max(last / first for first, last in groups) <= 1.1


def test_tables_have_what_memory_allows(tables):
    """Recomputed layers take their forward again; the wide slot has no room for three layers."""
    assert (tables.sizes, tables.slots) == ([1, 2], [(0, 1), (1, 2)])
    assert tables.whole[0].tolist() == [[0.0, 3.0, 7.0, 11.0], [0.0, 2.0, 4.0, np.inf]]
    assert tables.passing[0, 0].tolist() == [0.0, 2.0, 5.0, 8.0]
    assert tables.behind[0, 0].tolist() == [0.0, 1.0, 3.0, 5.0]
    assert tables.whole[1, 0].tolist() == [np.inf] * 4


def test_narrow_replicas_pass_layers_on_narrow_slots(tables):
    assert tables.forward.tolist() == [[1.0, 0.5], [np.inf, 0.5]]
    assert tables.through.tolist() == [[2.0, 1.25], [np.inf, 1.25]]


def test_few_microbatches_are_told_apart_by_the_widest_slot(tables):
    """Up to 19 of one sample, and up to 9 of two, which no narrow slot holds."""
    groups = tables.groups(20)
    found = {(size, width, wide) for size, width, wide in zip(groups.size, groups.width, groups.wide, strict=True)}
    assert found == {(0, 0, True), (0, 1, True), (0, 1, False), (1, 1, True), (1, 1, False)}
    assert all(wide == (fewest <= APART) for wide, fewest in zip(groups.wide, groups.fewest, strict=True))
    assert {int(most) for most in groups.most[groups.size == 1]} == set(range(1, 10))


def test_halves_have_all_numbers_but_the_fewest(tables):
    groups = tables.groups(1000)
    last = groups.only((groups.size == 0) & (groups.most == 999))
    ((fewest,), (most,)) = last.fewest, last.most
    halves = last.halves()
    pairs = zip(halves.fewest, halves.most, strict=True)
    assert [number for pair in pairs for number in range(int(pair[0]), int(pair[1]) + 1)] == list(range(int(fewest) + 1, 1000))
    assert most == 999


def test_most_layers_within_a_deadline(tables):
    """One microbatch within 7.5 s: two layers of 7 s on the narrow slot at once, and one behind a layer that passes in 0.5 s
    forward. Backward through all within the same time allows them."""
    groups = tables.groups(2)
    wide = groups.only(groups.width == 1)
    assert tables.most(wide, np.array([0.0, 1.0]), 7.5).tolist() == [[[2, 2]], [[2, 2]]]
    assert tables.most(wide, np.array([0.0, 1.0]), 7.25).tolist() == [[[2, 2]], [[1, 2]]]
    assert tables.with_head(wide, 1, np.array([[2, 2]]), 7.5).tolist() == [[False, True]]
