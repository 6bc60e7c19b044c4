"""Layers of two plans are moved at a time: the same plans with and without a second process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from planner.search import moves_ahead
from planner.search.crowded_links import descend, move_layers
from planner.search.incumbent import Incumbent
from planner.search.moves_ahead import MovesAhead
from planner.time_limit import TimeLimit
from tests.planner.builders import shape
from tests.planner.search.searches import incumbent, simulated
from tests.planner.search.test_crowded_links import FLAT, four_nodes
from tests.planner.search.test_unlike_beside import as_if

QUESTION = four_nodes(2.5e5)
"""Four stages of tp 2 are the fastest plan until layers of eight of tp 1 are moved."""


@pytest.fixture(params=[True, False], ids=["beside", "here"])
def beside(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    """Whether this machine seems to have an idle core."""
    monkeypatch.setattr(moves_ahead, "has_free_core", lambda: request.param)
    monkeypatch.setattr(moves_ahead, "BESIDE_FROM", 1)
    yield request.param


def searching() -> Incumbent:
    """A search that knows both plans."""
    kept = incumbent(QUESTION, best=simulated(QUESTION, shape(tp=2), *[("c", 4)] * 4))
    assert not kept.offer(shape(), tuple(FLAT))
    return kept


def test_a_second_process_finds_what_this_one_finds(beside):
    kept = searching()
    move_layers(kept)
    assert kept.best is not None and kept.best.config.tp == 1
    assert [stage.layers for stage in kept.best.stages] == [3, 1, 2, 2, 2, 2, 1, 3]
    assert kept.best.topology is QUESTION.topology
    assert not kept.limit.reached


def test_what_it_finds_is_kept_as_long_as_the_best_plan_is_the_same(beside):
    kept = searching()
    following = next(pair for pair in kept.fastest_of.values() if pair[1].config.tp == 1)
    before = kept.cutoff
    with MovesAhead(kept, descend, following) as ahead:
        assert ahead.collect() == beside
        assert (kept.cutoff < before) == beside
    again = searching()
    with MovesAhead(again, descend, following) as ahead:
        assert again.best is not None
        again.keep(as_if(again.best, 0.999 * before))
        assert not ahead.collect()


def test_no_process_begins_without_a_following_plan_or_time(beside):
    kept = searching()
    with MovesAhead(kept, descend, None) as ahead:
        assert not ahead.collect()
    kept.limit = TimeLimit(0.5)
    with MovesAhead(kept, descend, next(iter(kept.fastest_of.values()))) as ahead:
        assert not ahead.collect()
