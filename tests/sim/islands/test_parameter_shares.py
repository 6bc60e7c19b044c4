"""Which rank holds which part of the parameters, and what ranks of two islands have in common."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given

from sim.islands.parameter_shares import Common, Part, common, largest_share, parts
from sim.sync import Sync
from tests.builders import any_plan
from tests.sim.islands.builders import islands_plan, machines


def test_replicas_share_a_stage_and_tp_slices_stay_together():
    where = machines(devices=4)
    plan = islands_plan(where, Sync("every-step"), ({"tp": 2, "dp": 2}, {"dp": 4})).islands[0]
    assert parts(plan) == (Part(0, 0.0, 0.25), Part(2, 0.25, 0.5), Part(1, 0.5, 0.75), Part(3, 0.75, 1.0))
    assert largest_share(plan) == 0.25


def test_unlike_layouts_have_intervals_in_common():
    where = machines(devices=2)
    one, two = islands_plan(where, Sync("every-step"), ({"dp": 2}, {"dp": 1})).islands
    assert common(parts(one), parts(two)) == (Common(0, 0, 0.5), Common(1, 0, 0.5))
    assert common(parts(two), parts(one)) == (Common(0, 0, 0.5), Common(0, 1, 0.5))


def test_a_tied_embedding_counts_once():
    where = machines(devices=2)
    shape = {"tied_embeddings": True}
    plan = islands_plan(where, Sync("every-step"), ({"pp": 2}, {"pp": 2}), shape=shape).islands[0]
    first, second = parts(plan)
    assert first.end == pytest.approx(1 - second.end + second.begin)
    assert first.end - first.begin > second.end - second.begin  # the embedding is on the first stage


@given(any_plan(ranks=24), any_plan(ranks=24))
def test_parts_cover_all_parameters_once(one, two):
    first, second = parts(one), parts(two)
    for found in (first, second):
        assert found[0].begin == 0.0
        assert found[-1].end == pytest.approx(1.0)
        assert all(a.end == pytest.approx(b.begin) for a, b in pairwise(found))
    both = common(first, second)
    assert sum(pair.share for pair in both) == pytest.approx(1.0)
    sent = {part.rank: 0.0 for part in first}
    for pair in both:
        sent[pair.source] += pair.share
    held: dict[int, float] = {}
    for part in first:
        held[part.rank] = held.get(part.rank, 0.0) + part.end - part.begin
    assert sent == pytest.approx(held)
