"""Candidates are simulated in the order of their expected steps, with contention learned by kind."""

from __future__ import annotations

import functools
from dataclasses import replace
from types import SimpleNamespace

import pytest

from planner.search.candidates import Candidate
from planner.search.evaluation import PipelineEvaluation
from planner.search.pool import Pool
from planner.space.shape import Shape

CLASS = SimpleNamespace(cluster=SimpleNamespace(name="a"))
STAGES = functools.partial(PipelineEvaluation.stages, SimpleNamespace(classes=(CLASS,)))


def candidate(seconds: float, through: float, *layers: int, dp: int = 2) -> Candidate:
    """A candidate on one cluster."""
    evaluation = SimpleNamespace(shape=Shape(1, dp, 1, "none", "zb-h2", 1, 1), classes=(CLASS,), stages=STAGES)
    return Candidate(seconds, through, evaluation, tuple((0, k) for k in layers))


def test_a_kind_that_waited_for_its_messages_comes_later():
    """The first of dp 4 waits for half of its messages, 2 s; its like is then expected at 6.1 + 2 s, behind 7 s of dp 2."""
    pool, waits, like, idle = (
        Pool(),
        candidate(6.0, 4.0, 3, 3, dp=4),
        candidate(6.1, 4.0, 2, 4, dp=4),
        candidate(7.0, 4.0, 3, 3),
    )
    pool.add([idle, like, waits], 9.0)
    assert pool.take(9.0) is waits
    pool.learn(waits, 8.0)
    assert pool.expected(like) == pytest.approx(8.1)
    assert pool.expected(idle) == 7.0
    assert pool.expected(idle, 0.5) == pytest.approx(9.0)
    assert [pool.take(9.0), pool.take(9.0), pool.take(9.0)] == [idle, like, None]


def test_the_least_share_of_a_kind_is_remembered():
    """Shares of 0.5, 0.25 and 1; and candidates of other numbers of stages are another kind."""
    pool, two = Pool(), candidate(6.0, 4.0, 3, 3)
    for seconds in (8.0, 7.0, 10.0):
        pool.learn(two, seconds)
    assert pool.expected(two) == 7.0
    assert pool.expected(candidate(6.0, 4.0, 2, 2, 2)) == 6.0


def test_what_takes_longer_than_the_best_plan_is_dropped():
    pool = Pool()
    pool.add([candidate(6.0, 0.0, 6), candidate(9.0, 0.0, 3, 3)], 9.0)
    pool.learn(candidate(6.0, 0.0, 6), 8.0)  # one stage sends no messages: nothing to learn
    assert pool.contention == {}
    assert pool.take(6.0) is None
    assert pool.candidates == {}


def test_most_contention_of_a_kind_is_expected_where_only_the_gathers_differ():
    """Half of 4 s of messages was waited for with gathers beside forwards; without, four fifths of it are expected."""
    pool, overlapped = Pool(), candidate(6.0, 4.0, 3, 3)
    pool.learn(overlapped, 8.0)
    shape = replace(overlapped.shape, overlap_param_gather=not overlapped.shape.overlap_param_gather)
    other = replace(overlapped, evaluation=SimpleNamespace(shape=shape, classes=(CLASS,), stages=STAGES))
    assert pool.expected(other, 0.9) == pytest.approx(6.0 + 0.8 * 0.5 * 4.0)
    pool.learn(other, 7.0)
    assert pool.expected(other) == 7.0
    assert pool.expected(overlapped) == 8.0


def test_smaller_microbatches_are_expected_to_wait_less():
    """Half of 4 s of messages was waited for with microbatches of 4: a quarter of it is expected with one, all of it with 8."""
    pool, four = Pool(), candidate(6.0, 4.0, 3, 3)
    one, two, four, eight = (
        replace(
            four, evaluation=SimpleNamespace(shape=replace(four.shape, microbatch_size=size), classes=(CLASS,), stages=STAGES)
        )
        for size in (1, 2, 4, 8)
    )
    pool.learn(four, 8.0)
    assert [pool.expected(each) for each in (one, four, eight)] == pytest.approx([6.5, 8.0, 8.0])
    pool.learn(two, 6.6)
    assert [pool.expected(each) for each in (one, two, four, eight)] == pytest.approx([6.3, 6.6, 6.6, 6.6])


def test_what_only_unlike_ones_make_slow_is_doubtful():
    """Two virtual stages waited for 20 times their messages, which says little of four: they are doubtful, others are not."""
    pool, two = Pool(), candidate(6.0, 0.1, 3, 3)
    two, other, four = (
        replace(
            two, seconds=seconds, evaluation=SimpleNamespace(shape=replace(two.shape, vpp=vpp), classes=(CLASS,), stages=STAGES)
        )
        for vpp, seconds in ((2, 6.0), (2, 5.8), (4, 5.9))
    )
    pool.add([other, four, candidate(5.95, 0.1, 2, 4)], 9.0)
    pool.learn(two, 8.0)
    assert pool.take(7.0) is None
    assert pool.take_doubtful(5.9) is None
    assert pool.take_doubtful(5.95) is four
    assert pool.take_doubtful(5.95) is None
