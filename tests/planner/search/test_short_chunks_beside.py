"""The search of all plans with short chunks beside the proof: the same in a second process and in this one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from planner.placement.simulation import step
from planner.search import short_chunks, short_chunks_beside
from planner.search.incumbent import Incumbent
from planner.search.short_chunks import ShortChunks
from planner.search.short_chunks_beside import ShortChunksBeside
from planner.time_limit import TimeLimit
from tests.planner.builders import shape
from tests.planner.search.searches import incumbent, simulated
from tests.planner.search.test_short_chunks import question


@contextmanager
def begun(beside: bool, cp: int = 2) -> Iterator[tuple[ShortChunksBeside, Incumbent]]:
    """A search that has begun, if the best plan has cp 2 and a second process is of use, and the incumbent. Its plan has three
    stages, on as many of four nodes."""
    kept = incumbent(question(), best=simulated(question(), shape(dp=2 // cp, cp=cp), ("a", 2), ("a", 1), ("a", 1)))
    with pytest.MonkeyPatch.context() as patch, ShortChunksBeside(kept.context) as search:
        patch.setattr(short_chunks_beside, "has_free_core", lambda: beside)
        patch.setattr(short_chunks_beside, "BESIDE_FROM", 1)
        patch.setattr(short_chunks, "SMALL", 1)
        search.begin(kept)
        assert (search._second is not None) == (beside and cp == 2)
        yield search, kept


def test_a_second_process_finds_what_this_one_finds():
    found = []
    for beside in (True, False):
        with begun(beside) as (search, kept):
            before = kept.best
            assert before is not None
            search.settle(kept, ShortChunks(kept))
            assert kept.best is not None and step(kept.best) < step(before) and not kept.limit.reached
            assert kept.best.topology is kept.request.topology
            found.append((kept.best, sorted(map(step, kept.context.simulated))))
    assert found[0] == found[1]
    assert found[0][0].config.pp == 4, "a stage on each node"


def test_what_it_found_is_dropped_where_the_best_plan_is_another_one():
    """All plans are then searched here, below the step of a plan with the degree, and none below that of another."""
    with begun(True) as (search, kept):
        other = simulated(kept.request, shape(dp=1, cp=2), ("a", 1), ("a", 2), ("a", 1))
        kept.best = other
        search.settle(kept, ShortChunks(kept))
        again = kept.best
    with begun(False) as (_, alone):
        alone.best = other
        ShortChunks(alone).settle()
    assert again == alone.best is not other
    with begun(True) as (search, kept):
        kept.best = unlike = simulated(kept.request, shape(dp=2), *[("a", 1)] * 4)
        search.settle(kept, ShortChunks(kept))
        assert kept.best is unlike


def test_nothing_begins_for_a_plan_without_the_degree():
    with begun(True, cp=1) as (search, kept):
        before = kept.best
        search.settle(kept, ShortChunks(kept))
        assert kept.best is before


def test_nothing_is_taken_when_the_time_is_up():
    with begun(True) as (search, kept):
        before, kept.limit = kept.best, TimeLimit(0.0)
        search.settle(kept, ShortChunks(kept))
        assert kept.best is before
