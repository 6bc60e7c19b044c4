"""Lengths of pipelines under pins and limits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.limits import NO_LIMITS, Limits
from planner.request import Wishes
from planner.space.lengths import allows, allows_stages, exist, longest, shortest
from sim.plan.allowed import Allowed
from tests.planner.builders import on_one_cluster, on_two_clusters, shape


def pp(**allowed: int) -> Limits:
    return Limits((("pp", Allowed(**allowed)),))


@pytest.mark.parametrize(
    ("pinned", "limits", "least", "most", "allowed"),
    [
        (None, NO_LIMITS, 1, None, [1, 2, 3, 4, 5]),
        (3, NO_LIMITS, 3, 3, [3]),
        (None, pp(least=2, most=4), 2, 4, [2, 3, 4]),
        (3, pp(least=2, most=4), 3, 3, [3]),
        (5, pp(most=4), 5, 4, []),
        (None, Limits(devices=3), 1, 3, [1, 2, 3]),
        (4, Limits(devices=3), 4, 3, []),
        (None, Limits(stages=((1, "a"),)), 2, None, [2, 3, 4, 5]),
        (2, Limits(stages=((-3, "a"),)), 3, 2, []),
    ],
)
def test_lengths(pinned, limits, least, most, allowed):
    question = replace(on_one_cluster(wishes=Wishes(pp=pinned), nodes=5), limits=limits)
    assert (shortest(question), longest(question, shape())) == (least, most)
    assert [pp for pp in range(1, 6) if allows(question, shape(), pp)] == allowed


@pytest.mark.parametrize(
    ("limits", "clusters", "allowed"),
    [
        (NO_LIMITS, "ab", True),
        (NO_LIMITS, "aabbb", False),  # five stages of four layers
        (pp(most=2), "aab", False),
        (Limits(first="a"), "ab", True),
        (Limits(first="a"), "ba", False),
        (Limits(last="a"), "a", True),
        (Limits(stages=((1, "b"),)), "ab", True),
        (Limits(stages=((1, "b"),)), "aab", False),
        (Limits(stages=((1, "a"), (-2, "a"))), "aab", True),
        (Limits(stages=((2, "b"),)), "ab", False),
    ],
)
def test_pipelines(limits, clusters, allowed):
    question = replace(on_two_clusters(layers=4, nodes=3), limits=limits)
    assert allows_stages(question, shape(), clusters) is allowed


def test_a_schedule_of_whole_rounds_allows_divisors_of_the_microbatches():
    """But not one rank, where virtual stages are no pipeline."""
    question = on_two_clusters(layers=8, batch=4, nodes=3)
    one = shape(schedule="interleaved", vpp=2)
    assert [length for length in range(1, 5) if allows_stages(question, one, "a" * length)] == [2, 4]


def test_stages_that_are_kept_may_leave_no_length():
    """Three of four stages are kept: a cluster does not come again behind another one, and a pin needs them, too."""
    question = on_two_clusters(layers=4, batch=6)
    kept = replace(question, limits=Limits(stages=((0, "a"), (1, "b"), (2, "b"))))
    assert exist(question) and exist(kept) and exist(replace(kept, wishes=Wishes(pp=4)))
    assert not exist(replace(kept, wishes=Wishes(pp=2)))
    assert not exist(replace(question, limits=Limits(stages=((0, "a"), (1, "b"), (2, "a")))))
    assert not exist(replace(question, wishes=Wishes(pp=5)))
