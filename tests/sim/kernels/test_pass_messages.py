"""Messages around the passes of a pipeline rank: literal ones of small pipelines."""

from __future__ import annotations

from sim.kernels.pass_messages import Hop, pass_messages
from sim.plan import schedules


def test_a_middle_rank_exchanges_with_both_neighbours() -> None:
    messages = pass_messages("1f1b", 1, 3, 3)
    assert messages.arrivals == {("F", 1): Hop(0, 0, 0), ("B", 1): Hop(2, 2, 1)}
    assert messages.departures == {("F", 1): Hop(1, 2, 1), ("B", 1): Hop(1, 0, 0)}


def test_stages_after_the_head_and_stages_of_one_rank_exchange_nothing() -> None:
    assert not pass_messages("1f1b", 2, 3, 2).arrivals  # the head is on stage 1
    assert not pass_messages("interleaved", 0, 1, 4).departures


def test_virtual_stages_go_round_the_ranks() -> None:
    assert pass_messages("interleaved", 0, 2, 4).arrivals == {
        ("F", 2): Hop(1, 1, 1),
        ("B", 0): Hop(1, 1, 0),
        ("B", 2): Hop(3, 1, 2),
    }


def test_a_send_is_held_until_the_next_gradient_has_arrived() -> None:
    schedule = "1f1b-deepspeed"
    work, messages = schedules.actions(schedule, 0, 2, 3, 1), pass_messages(schedule, 0, 2, 2)  # F0 F1 B0 F2 B1 B2
    assert [[one.microbatch for one, _ in messages.after(work, index)] for index in range(6)] == [[0], [], [], [], [], []]
    assert [[one.microbatch for one, _ in messages.held(work, index)] for index in range(6)] == [[], [], [1], [], [2], []]
    assert [[one.kind for one, _ in messages.before(work, index)] for index in range(6)] == [[], [], ["B"], [], ["B"], ["B"]]
