"""A pipeline of each other number of stages is simulated where messages share links."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.limits import Allowed, Limits
from planner.placement.simulation import step
from planner.search import other_lengths
from planner.search.other_lengths import _shares, simulate_lengths
from tests.planner.builders import shape
from tests.planner.search.searches import incumbent
from tests.planner.search.test_crowded_links import FLAT, four_nodes


def test_fewer_stages_are_faster_where_nodes_share_a_slow_nic():
    """Eight stages on four nodes: both middle nodes send activations and gradients over one NIC. Six need one such node."""
    kept = incumbent(four_nodes(1.5e5))
    assert kept.offer(shape(), tuple(FLAT))
    assert step(kept.best) == pytest.approx(4.872, rel=1e-3)
    simulate_lengths(kept)
    assert [stage.layers for stage in kept.best.stages] == [4, 3, 2, 2, 2, 3]
    assert step(kept.best) == pytest.approx(4.378, rel=1e-3)


def test_only_what_may_be_faster_and_is_quick_is_simulated(monkeypatch):
    fast = incumbent(four_nodes(3e5))  # no other number of stages is faster on an idle network
    assert fast.offer(shape(), tuple(FLAT))
    proved = incumbent(four_nodes(1.5e5))
    assert proved.offer(shape(), tuple(FLAT))
    proved.lower_bound = proved.cutoff
    for kept in (fast, proved):
        simulate_lengths(kept)
        assert [pp for _, pp in kept.fastest_of] == [8]
    simulate_lengths(incumbent(four_nodes(1.5e5)))  # without a plan there is nothing to do
    slow = incumbent(four_nodes(1.5e5))
    assert slow.offer(shape(), tuple(FLAT))
    monkeypatch.setattr(other_lengths, "FORWARDS", 6 * 16)  # six stages of 16 microbatches
    simulate_lengths(slow)
    assert sorted(pp for _, pp in slow.fastest_of) == [4, 5, 8]


def test_what_is_required_of_the_length_holds():
    question = four_nodes(1.5e5)
    kept = incumbent(replace(question, limits=Limits(dimensions=(("pp", Allowed(least=7)),))))
    assert kept.offer(shape(), tuple(FLAT))
    simulate_lengths(kept)
    assert sorted(pp for _, pp in kept.fastest_of) == [7, 8]


@pytest.mark.parametrize(
    ("used", "capacity", "pp", "counts"),
    [
        ({"a": 4}, {"a": 8}, 6, {"a": 6}),
        ({"a": 6, "b": 2}, {"a": 8, "b": 8}, 4, {"a": 3, "b": 1}),
        ({"a": 6, "b": 2}, {"a": 8, "b": 8}, 12, {"a": 8, "b": 4}),
        ({"a": 1, "b": 1, "c": 1}, {"a": 1, "b": 4, "c": 4}, 6, {"a": 1, "b": 3, "c": 2}),
    ],
)
def test_stages_are_divided_in_proportion(used, capacity, pp, counts):
    assert _shares(used, capacity, pp) == counts
