"""Schedules as the tables one draws on a board: what every pipeline place does, in order."""

from __future__ import annotations

import pytest

from sim import program, schedules
from sim.errors import PlanError


def table(name: str, places: int, microbatches: int, chunks: int = 1) -> list[str]:
    """The text of every place's program."""
    return [program.text(schedules.actions(name, place, places, microbatches, chunks), chunks) for place in range(places)]


def test_1f1b_of_two_places_and_four_microbatches() -> None:
    assert table("1f1b", 2, 4) == [
        "F0 F1 B0 F2 B1 F3 B2 B3",
        "F0 B0 F1 B1 F2 B2 F3 B3",
    ]


def test_1f1b_of_four_places_and_eight_microbatches() -> None:
    """Narayanan et al., arXiv 2104.04473, figure 3 (its cells are numbered from 1)."""
    assert table("1f1b", 4, 8) == [
        "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7",
        "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7",
        "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7",
        "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7",
    ]


def test_1f1b_with_fewer_microbatches_than_places() -> None:
    assert table("1f1b", 4, 2) == ["F0 F1 B0 B1", "F0 F1 B0 B1", "F0 F1 B0 B1", "F0 B0 F1 B1"]


def test_gpipe_does_all_forwards_then_all_backwards_at_every_place() -> None:
    assert table("gpipe", 2, 4) == ["F0 F1 F2 F3 B0 B1 B2 B3"] * 2
    assert table("gpipe", 4, 8) == ["F0 F1 F2 F3 F4 F5 F6 F7 B0 B1 B2 B3 B4 B5 B6 B7"] * 4


def test_interleaved_of_two_places_two_chunks_and_four_microbatches() -> None:
    """Place 0 holds stages 0 and 2, place 1 stages 1 and 3; warm-up of 2 (p - r - 1) + (v - 1) p forwards."""
    assert table("interleaved", 2, 4, 2) == [
        "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3",
        "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3",
    ]


def test_interleaved_of_four_places_two_chunks_and_eight_microbatches() -> None:
    """Narayanan et al., arXiv 2104.04473, figure 4, lower half: Megatron-LM's order on the first and the last device."""
    first, _, _, last = table("interleaved", 4, 8, 2)
    assert first == (
        "0F0 0F1 0F2 0F3 4F0 4F1 4F2 4F3 0F4 0F5 "
        "0F6 4B0 0F7 4B1 4F4 4B2 4F5 4B3 4F6 0B0 4F7 0B1 "
        "0B2 0B3 4B4 4B5 4B6 4B7 0B4 0B5 0B6 0B7"
    )
    assert last == (
        "3F0 3F1 3F2 3F3 "
        "7F0 7B0 7F1 7B1 7F2 7B2 7F3 7B3 3F4 3B0 3F5 3B1 3F6 3B2 3F7 3B3 7F4 7B4 7F5 7B5 7F6 7B6 7F7 7B7 "
        "3B4 3B5 3B6 3B7"
    )


def test_interleaved_with_as_many_microbatches_as_places_is_all_warm_up() -> None:
    """Megatron-LM runs all forwards first where the microbatches are as many as the places."""
    assert table("interleaved", 2, 2, 2) == [
        "0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1",
        "1F0 1F1 3F0 3F1 3B0 3B1 1B0 1B1",
    ]


def test_interleaved_refuses_microbatches_that_are_no_multiple_of_the_places() -> None:
    with pytest.raises(PlanError) as caught:
        schedules.actions("interleaved", 0, 4, 6, 2)
    assert str(caught.value) == "schedule interleaved needs a multiple of pp 4 microbatches, not 6"


def test_a_schedule_of_one_stage_a_rank_refuses_chunks() -> None:
    with pytest.raises(PlanError) as caught:
        schedules.actions("1f1b", 0, 4, 8, 2)
    assert str(caught.value) == "schedule 1f1b holds one stage a rank; vpp 2 needs another, such as interleaved"


def test_an_unknown_schedule_is_refused_with_the_known_ones() -> None:
    with pytest.raises(PlanError) as caught:
        schedules.get("1f2b")
    assert str(caught.value) == f"schedule '1f2b' is unknown; known: {', '.join(schedules.names())}"


def test_the_folder_is_the_registry() -> None:
    assert {"1f1b", "gpipe", "interleaved"} <= set(schedules.names())
    assert all(name == schedules.get(name).NAME for name in schedules.names())


@pytest.mark.parametrize("name", schedules.names())
@pytest.mark.parametrize("chunks", [1, 2, 3])
@pytest.mark.parametrize(("places", "microbatches"), [(1, 1), (1, 5), (2, 2), (2, 4), (4, 4), (4, 8), (4, 12), (8, 8)])
def test_every_stage_and_microbatch_goes_forward_once_and_backward_once_and_in_that_order(
    name: str, chunks: int, places: int, microbatches: int
) -> None:
    if chunks > 1 and not schedules.get(name).CHUNKED:
        pytest.skip("holds one stage a rank")
    for place in range(places):
        actions = schedules.actions(name, place, places, microbatches, chunks)
        forward = [(a.stage, a.microbatch) for a in actions if a.kind == "F"]
        backward = [(a.stage, a.microbatch) for a in actions if a.kind == "B"]
        wanted = [(stage, m) for stage in range(place, places * chunks, places) for m in range(microbatches)]
        assert sorted(forward) == wanted
        assert sorted(backward) == wanted
        where = {(a.kind, a.stage, a.microbatch): index for index, a in enumerate(actions)}
        assert all(where["F", *key] < where["B", *key] for key in wanted)


@pytest.mark.parametrize("name", schedules.names())
@pytest.mark.parametrize(
    ("places", "microbatches", "chunks"), [(2, 4, 1), (4, 8, 1), (2, 4, 2), (4, 8, 2), (4, 4, 3), (8, 16, 2)]
)
def test_played_in_order_no_place_waits_for_ever(name: str, places: int, microbatches: int, chunks: int) -> None:
    """Every action is played as soon as what it needs is there; a table that can be drawn has no deadlock."""
    if chunks > 1 and not schedules.get(name).CHUNKED:
        pytest.skip("holds one stage a rank")
    programs = [list(schedules.actions(name, place, places, microbatches, chunks)) for place in range(places)]
    last, done = places * chunks - 1, set()
    moving = True
    while moving:
        moving = False
        for actions in programs:
            while actions:
                a = actions[0]
                ahead = a.stage - 1 if a.kind == "F" else a.stage + 1
                needs = [("F", a.stage, a.microbatch)] if a.kind != "F" else []
                needs += [(a.kind, ahead, a.microbatch)] if a.kind in "FB" and 0 <= ahead <= last else []
                if not done.issuperset(needs):
                    break
                done.add((a.kind, a.stage, a.microbatch))
                del actions[0]
                moving = True
    assert programs == [[]] * places


@pytest.mark.parametrize(("places", "microbatches"), [(1, 4), (2, 4), (4, 8), (8, 3), (4, 2)])
def test_1f1b_holds_as_many_microbatches_as_places_are_still_to_come(places: int, microbatches: int) -> None:
    held = [schedules.peak_in_flight("1f1b", place, places, microbatches, 1) for place in range(places)]
    assert held == [min(microbatches, places - place) for place in range(places)]


def test_gpipe_holds_all_microbatches_everywhere() -> None:
    assert [schedules.peak_in_flight("gpipe", place, 4, 8, 1) for place in range(4)] == [8, 8, 8, 8]


def test_interleaving_holds_a_warm_up_and_one_more() -> None:
    """In chunks of half a place: 2 (p - r - 1) + (v - 1) p + 1; p v (1 + (p - 1) / p v) at first (arXiv 2205.05198, 4.2.3)."""
    assert [schedules.peak_in_flight("interleaved", place, 4, 8, 2) for place in range(4)] == [11, 9, 7, 5]
