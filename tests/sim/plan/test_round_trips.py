"""Round trips: literal counts, the repeated program against the whole one, and the engine."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from sim.kernels.pass_messages import pass_messages
from sim.plan import schedules
from sim.plan.round_trips import RoundTrips, first_return, held_forwards, of_program, round_trips


def test_the_first_rank_of_1f1b_waits_for_every_fourth_backward():
    """Between the first of 32 forwards and the last: 31 forwards and 28 backwards, or seven trips and three of each."""
    assert round_trips("1f1b", 0, 4, 32) == (RoundTrips(0, 31, 28, 0), RoundTrips(1, 27, 27, 0), RoundTrips(7, 3, 3, 0))
    assert round_trips("1f1b", 3, 4, 32) == (RoundTrips(0, 31, 31, 0), RoundTrips(1, 30, 30, 0), RoundTrips(31, 0, 0, 0))


def test_what_follows_the_first_return_of_a_microbatch():
    """Four ranks of 1F1B have four, three, two and one of 32 forwards before their first backward; the other 31 follow it."""
    assert [first_return("1f1b", rank, 4, 32)[1:4] for rank in range(4)] == [(28, 31, 0), (29, 31, 0), (30, 31, 0), (31, 31, 0)]
    assert first_return("zb-h1", 0, 4, 32)[1:4] == (28, 31, 32)
    assert first_return("gpipe", 0, 4, 32)[1:4] == (0, 31, 0)


def test_the_first_virtual_stage_returns_after_the_last_one():
    """The last of two ranks with two virtual stages each and four microbatches runs F0 F0 F1 B1 F1 B1 F0 B0: one forward of the
    first and two of the second stage, and three and two backwards follow."""
    program = schedules.actions("interleaved", 1, 2, 4, 2)
    assert " ".join(f"{one.kind}{one.stage // 2}" for one in program[:8]) == "F0 F0 F1 B1 F1 B1 F0 B0"
    assert first_return("interleaved", 1, 2, 4, 2) == RoundTrips(1, 1, 2, 0, 1, 1)


@pytest.mark.parametrize("name", tuple(filter(schedules.is_planned, schedules.names())))
def test_many_microbatches_follow_the_first_return_as_few_do(name):
    """The counts of few microbatches, continued, are those of the whole program."""
    for ranks in range(1, 6):
        for chunks in (2, 3) if schedules.get(name).CHUNKED else (1,):
            for microbatches in (1, 3, 8, 24, 60, 100):
                if schedules.is_defined(name, ranks, microbatches, chunks):
                    for rank in range(ranks):
                        program = schedules.actions(name, rank, ranks, microbatches, chunks)
                        place = next(i for i, one in enumerate(program) if (one.kind, one.stage) == ("B", rank))
                        found = first_return(name, rank, ranks, microbatches, chunks)
                        after = Counter(one.kind for one in program[place + 1 :])
                        assert chunks * found.forwards + found.more_forwards == after["F"]
                        assert chunks * found.backwards + found.more_backwards == after["B"]
                        assert found.weights <= after["W"] // chunks


def test_a_longer_warm_up_has_fewer_round_trips():
    assert round_trips("zb-h2", 0, 4, 32)[-1] == RoundTrips(4, 3, 3, 3)


def test_a_schedule_of_all_forwards_first_has_no_round_trip():
    assert round_trips("gpipe", 0, 4, 32) == (RoundTrips(0, 31, 0, 0),)


@pytest.mark.parametrize("name", tuple(filter(schedules.is_planned, schedules.names())))
def test_few_microbatches_repeat_as_many_do(name):
    """The counts of a program of few microbatches, continued, are those of the whole program."""
    for ranks in range(1, 7):
        for chunks in (2, 3) if schedules.get(name).CHUNKED else (1,):
            for microbatches in (1, 2, 3, 5, 8, 13, 24, 30, 60, 61, 96, 100):
                if schedules.is_defined(name, ranks, microbatches, chunks):
                    for rank in range(ranks):
                        whole = schedules.actions(name, rank, ranks, microbatches, chunks)
                        assert round_trips(name, rank, ranks, microbatches, chunks) == of_program(whole, rank, ranks, chunks)


def test_a_schedule_of_whole_rounds_is_cut_by_whole_rounds():
    """Interleaved with one chunk, too, needs a multiple of the ranks as microbatches."""
    for ranks in (2, 3, 4):
        for rank in range(ranks):
            whole = of_program(schedules.actions("interleaved", rank, ranks, 64 * ranks, 1), rank, ranks, 1)
            assert round_trips("interleaved", rank, ranks, 64 * ranks, 1) == whole


def test_a_stage_of_deepspeed_waits_for_all_activations_but_those_of_the_warm_up():
    """32 microbatches on four ranks: the last rank waits after each backward but the last, the second from the third one on."""
    assert [held_forwards("1f1b-deepspeed", rank, 4, 32) for rank in range(4)] == [0, 29, 30, 31]
    assert [held_forwards("1f1b-deepspeed", rank, 4, 2) for rank in range(4)] == [0, 0, 0, 1]
    assert {held_forwards(name, rank, 4, 32) for name in ("1f1b", "gpipe", "zb-h1", "interleaved") for rank in range(4)} == {0}


@pytest.mark.parametrize("microbatches", [1, 2, 5, 9])
@pytest.mark.parametrize("pp", [2, 3, 6])
def test_what_is_held_is_what_the_messages_of_both_ranks_say(pp, microbatches):
    """The rank before sends the activations together with a backward whose gradient this rank has just sent."""
    name = "1f1b-deepspeed"
    for rank in range(1, pp):
        own, before = (schedules.actions(name, one, pp, microbatches, 1) for one in (rank, rank - 1))
        messages = pass_messages(name, rank - 1, pp, pp)
        held = [(before[index], one) for index in range(len(before)) for one, _ in messages.held(before, index)]
        after = {(b.microbatch, f.microbatch) for b, f in pairwise(own) if (b.kind, f.kind) == ("B", "F")}
        assert held_forwards(name, rank, pp, microbatches) == sum((b.microbatch, f.microbatch) in after for b, f in held)
