"""The closed form by literal timetables of two layers and two microbatches."""

from __future__ import annotations

from sim.disaggregation.tasks import tasks
from sim.disaggregation.timetable import stream_ends, timetable
from tests.sim.disaggregation.seconds import SECONDS, seconds


def begins(kept: tuple[int, ...], stream: str) -> str:
    listed = tasks(kept, 2)
    times = timetable(listed, seconds)
    return " ".join(f"{task}@{begin:g}" for task, (begin, _) in zip(listed, times, strict=True) if task.stream == stream)


def test_two_layers_and_two_microbatches():
    """Attention takes 1 s forward and 2 s backward, experts 2 and 4, an exchange 0.5: experts work without a pause."""
    assert begins((0, 0), "attention") == (
        "A0F0@0 A0F1@1 A1F0@4 A1F1@6 A2F0@8 A2B0@9 A2F1@11 A2B1@12 A1B0@16 A1B1@20 A0B0@24 A0B1@28"
    )
    assert begins((0, 0), "experts") == "E1F0@1.5 E1F1@3.5 E2F0@5.5 E2F1@7.5 E2B0@11.5 E2B1@15.5 E1B0@19.5 E1B1@23.5"
    assert begins((0, 0), "dispatch") == "D1F0@1 D1F1@2 D2F0@5 D2F1@7 D2B0@11 D2B1@14 D1B0@18 D1B1@22"
    assert begins((0, 0), "combine") == "C1F0@3.5 C1F1@5.5 C2F0@7.5 C2F1@9.5 C2B0@15.5 C2B1@19.5 C1B0@23.5 C1B1@27.5"


def test_kept_experts_of_the_second_layer():
    """They take 1 s and 2 s of the attention ranks; a combine waits for the experts of both sets."""
    assert begins((0, 4), "attention") == (
        "A0F0@0 A0F1@1 A1F0@4 A1F1@6 X2F0@7 X2F1@8 A2F0@9 A2B0@10 A2F1@12 A2B1@13 X2B0@15 X2B1@17 A1B0@19 A1B1@21 "
        "A0B0@26 A0B1@30"
    )
    assert begins((0, 4), "combine") == "C1F0@3.5 C1F1@5.5 C2F0@8 C2F1@9.5 C2B0@17 C2B1@20.5 C1B0@25.5 C1B1@29.5"


def test_one_microbatch_overlaps_nothing():
    """DistEP of the paper: a step is the sum of all tasks."""
    listed = tasks((0, 0), 1)
    times = timetable(listed, seconds)
    assert stream_ends(listed, times)["attention"] == sum(map(seconds, listed)) == 3 * 3 + 2 * 6 + 8 * 0.5


def test_a_round_begins_while_experts_end_the_last_one():
    listed = tasks((0,), 1, rounds=2)
    times = dict(zip(map(str, listed[len(listed) // 2 :]), timetable(listed, seconds)[len(listed) // 2 :], strict=True))
    assert SECONDS["A", False] == 1
    assert times["A0F0"] == (14, 15)
    assert times["A0B0"] == (26, 28)
